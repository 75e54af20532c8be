# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, embedsignature=True
"""
Decodes JSON texts into Arrow buffers of a given type, without a Python object per record.

The texts are strict JSON (RFC 8259). Only the fields of the type are decoded; the rest is checked
and skipped. For any input, nothing outside the given buffers is read, and the columns never
exceed ``max_bytes``, except for a row of nulls in place of a record that does not fit.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    #if defined(__SSE2__)
    #include <emmintrin.h>
    #endif

    /* Return the first quote, backslash or control character from `at` on, or `end`. If a byte
       before it is not ASCII, a bit of `high` is set. Reads nothing at or after `end`. */
    static inline const uint8_t* find_special(
        const uint8_t* at, const uint8_t* end, uint32_t* high
    ) {
    #if defined(__SSE2__)
        const __m128i quote = _mm_set1_epi8('"');
        const __m128i backslash = _mm_set1_epi8(92);
        const __m128i control = _mm_set1_epi8(0x1f);
        while (end - at >= 16) {
            __m128i block = _mm_loadu_si128((const __m128i*)at);
            __m128i special = _mm_or_si128(
                _mm_or_si128(_mm_cmpeq_epi8(block, quote), _mm_cmpeq_epi8(block, backslash)),
                _mm_cmpeq_epi8(_mm_min_epu8(block, control), block)
            );
            uint32_t mask = (uint32_t)_mm_movemask_epi8(special);
            uint32_t wide = (uint32_t)_mm_movemask_epi8(block);
            if (mask) {
                *high |= wide & ((mask & (0u - mask)) - 1u);
                return at + __builtin_ctz(mask);
            }
            *high |= wide;
            at += 16;
        }
    #else
        const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
        while (end - at >= 8) {
            uint64_t block, quote, backslash;
            memcpy(&block, at, 8);
            quote = block ^ (ones * '"');
            backslash = block ^ (ones * 92);
            /* May stop too early at a byte that is not ASCII; the loop below then continues. */
            if ((((quote - ones) & ~quote) | ((backslash - ones) & ~backslash)
                 | ((block - ones * 0x20) & ~block) | block) & tops) {
                break;
            }
            at += 8;
        }
    #endif
        while (at < end && *at != '"' && *at != 92 && *at >= 0x20) {
            *high |= *at & 0x80;
            at += 1;
        }
        return at;
    }

    /* The high and low half of a product. */
    static inline void wide_product(uint64_t a, uint64_t b, uint64_t* high, uint64_t* low) {
        unsigned __int128 product = (unsigned __int128)a * b;
        *high = (uint64_t)(product >> 64);
        *low = (uint64_t)product;
    }

    static inline int leading_zeros(uint64_t bits) {
        return __builtin_clzll(bits);
    }
    """
    const uint8_t* find_special(
        const uint8_t* at, const uint8_t* end, uint32_t* high
    ) noexcept nogil
    void wide_product(uint64_t a, uint64_t b, uint64_t* high, uint64_t* low) noexcept nogil
    int leading_zeros(uint64_t bits) noexcept nogil

cdef extern from "Python.h":
    double PyOS_string_to_double(const char* text, char** end, object overflow) except? -1.0

# Jackson's limits, which are Spark's.
cdef enum:
    MAX_DEPTH = 1000
    MAX_NUMBER = 1000

cdef enum:
    # The maximum number of keys that are expected in the order of the previous object, and the
    # maximum size of such a key with its quote.
    SLOTS = 64
    SLOT_TEXT = 48
    # The number of expected keys that a key is compared with.
    MAX_COMPARED = 3
    # Digits that always fit into 64 bits.
    MAX_DIGITS = 19

include "_columns.pxi"
include "_decimals.pxi"

cdef struct Slot:
    # A key with its closing quote, if it is short, and the index of its field or -1.
    uint8_t[SLOT_TEXT] text
    int32_t size
    int32_t child


cdef struct Lookup:
    # The keys of an object in their usual order, and a hash table of the fields.
    Slot[SLOTS] slots
    uint32_t mask
    int32_t* table
    # The top-level STRING that gets the unknown fields, or NULL.
    Node* rescued


cdef double[23] POWERS_OF_TEN
# The upper 128 bits of 5**q, from q = -342 on (Lemire, "Number Parsing at a Gigabyte per Second").
cdef enum:
    MIN_POWER = -342
    MAX_POWER = 308
cdef uint64_t[651] FIVES_HIGH
cdef uint64_t[651] FIVES_LOW


def _fill_powers():
    cdef int i
    for i in range(23):
        POWERS_OF_TEN[i] = float(10 ** i)
    for q in range(MIN_POWER, MAX_POWER + 1):
        bits = _five_to_the(q)
        FIVES_HIGH[q - MIN_POWER] = bits >> 64
        FIVES_LOW[q - MIN_POWER] = bits & 0xFFFF_FFFF_FFFF_FFFF


def _five_to_the(q):
    """
    Return the 128 most significant bits of 5**q.
    """
    if q >= 0:
        power = 5 ** q
        extra = power.bit_length() - 128
        return power >> extra if extra > 0 else power << -extra
    power = 5 ** -q
    # Rounded up only where the quotient is used for exact products.
    return (1 << (power.bit_length() + 127)) // power + (q >= -27)


_fill_powers()


# --- Syntax ---------------------------------------------------------------------------------------

cdef inline int unexpected(Parser* parser) noexcept nogil:
    return malformed(parser, ENDED if parser.at >= parser.end else UNEXPECTED)


cdef inline void skip_spaces(Parser* parser) noexcept nogil:
    cdef uint8_t byte
    while parser.at < parser.end:
        byte = parser.at[0]
        if byte > 0x20 or not (byte == 0x20 or byte == 0x0A or byte == 0x0D or byte == 0x09):
            return
        parser.at += 1


cdef inline bint is_digit(uint8_t byte) noexcept nogil:
    return <uint8_t>(byte - 48) <= 9


cdef inline int hex_digit(uint8_t byte) noexcept nogil:
    if is_digit(byte):
        return byte - 48
    byte |= 0x20
    return byte - 87 if 97 <= byte <= 102 else -1


cdef struct Text:
    const uint8_t* start
    size_t size
    bint escaped


cdef inline int read_text(Parser* parser, Text* text) noexcept nogil:
    """
    Read a string whose opening quote has been read, and its closing quote.
    """
    cdef const uint8_t* start = parser.at
    cdef uint32_t high = 0
    cdef int status
    text.start = start
    text.escaped = False
    while True:
        parser.at = find_special(parser.at, parser.readable, &high)
        if parser.at >= parser.end:
            parser.at = parser.end
            return malformed(parser, ENDED)
        if parser.at[0] == 34:
            break
        if parser.at[0] != 92:
            return malformed(parser, CONTROL)
        text.escaped = True
        status = skip_escape(parser)
        if status:
            return status
    text.size = parser.at - start
    if high and not is_utf8(start, parser.at):
        parser.at = start
        return malformed(parser, BAD_UTF8)
    parser.at += 1
    return OK


cdef int skip_escape(Parser* parser) noexcept nogil:
    cdef uint8_t byte
    cdef int i
    if parser.end - parser.at < 2:
        parser.at = parser.end
        return malformed(parser, ENDED)
    byte = parser.at[1]
    if byte == 117:
        if parser.end - parser.at < 6:
            parser.at = parser.end
            return malformed(parser, ENDED)
        for i in range(2, 6):
            if hex_digit(parser.at[i]) < 0:
                return malformed(parser, BAD_ESCAPE)
        parser.at += 6
        return OK
    if unescaped(byte) == 0:
        return malformed(parser, BAD_ESCAPE)
    parser.at += 2
    return OK


cdef inline uint8_t unescaped(uint8_t byte) noexcept nogil:
    """
    Return the byte for the letter of a short escape, or 0 if there is no such escape.
    """
    if byte == 34 or byte == 92 or byte == 47:
        return byte
    if byte == 98:
        return 8
    if byte == 102:
        return 12
    if byte == 110:
        return 10
    if byte == 114:
        return 13
    return 9 if byte == 116 else 0


cdef inline uint32_t four_hex(const uint8_t* at) noexcept nogil:
    return (
        (<uint32_t>hex_digit(at[0]) << 12) | (<uint32_t>hex_digit(at[1]) << 8)
        | (<uint32_t>hex_digit(at[2]) << 4) | <uint32_t>hex_digit(at[3])
    )


cdef int64_t unescape(const Text* text, uint8_t* to) noexcept nogil:
    """
    Write a checked string with its escapes resolved, and return the new size.

    The new size is never larger than the old size. Returns -1 if half of a surrogate pair is
    missing.
    """
    cdef const uint8_t* at = text.start
    cdef const uint8_t* end = at + text.size
    cdef uint8_t* start = to
    cdef uint32_t point, low
    while at < end:
        if at[0] != 92:
            to[0] = at[0]
            to += 1
            at += 1
            continue
        if at[1] != 117:
            to[0] = unescaped(at[1])
            to += 1
            at += 2
            continue
        point = four_hex(at + 2)
        at += 6
        if 0xD800 <= point <= 0xDFFF:
            if point >= 0xDC00 or end - at < 6 or at[0] != 92 or at[1] != 117:
                return -1
            low = four_hex(at + 2)
            if not 0xDC00 <= low <= 0xDFFF:
                return -1
            at += 6
            point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00)
        if point < 0x80:
            to[0] = point
            to += 1
        elif point < 0x800:
            to[0] = 0xC0 | (point >> 6)
            to[1] = 0x80 | (point & 0x3F)
            to += 2
        elif point < 0x10000:
            to[0] = 0xE0 | (point >> 12)
            to[1] = 0x80 | ((point >> 6) & 0x3F)
            to[2] = 0x80 | (point & 0x3F)
            to += 3
        else:
            to[0] = 0xF0 | (point >> 18)
            to[1] = 0x80 | ((point >> 12) & 0x3F)
            to[2] = 0x80 | ((point >> 6) & 0x3F)
            to[3] = 0x80 | (point & 0x3F)
            to += 4
    return to - start


cdef int read_plain(Parser* parser, Text* text, bint* is_lone_surrogate) noexcept nogil:
    """
    Read a string. If it has escapes, they are resolved in a copy in the scratch block.
    """
    cdef int status = read_text(parser, text)
    cdef int64_t size
    is_lone_surrogate[0] = False
    if status or not text.escaped:
        return status
    parser.scratch.used = 0
    status = reserve(parser, &parser.scratch, text.size)
    if status:
        return status
    size = unescape(text, parser.scratch.start)
    if size < 0:
        is_lone_surrogate[0] = True
        return OK
    text.start = parser.scratch.start
    text.size = size
    text.escaped = False
    return OK


cdef struct Number:
    const uint8_t* start
    size_t size
    bint whole


cdef int no_digit(Parser* parser, const uint8_t* at) noexcept nogil:
    """
    Report the end of the text, or a byte in the place of a digit.
    """
    parser.at = at
    return malformed(parser, ENDED if at >= parser.end else BAD_NUMBER)


cdef inline int read_number(Parser* parser, Number* number) noexcept nogil:
    cdef const uint8_t* at = parser.at
    cdef const uint8_t* end = parser.end
    number.start = at
    number.whole = True
    if at[0] == 45:
        at += 1
    if at >= end or not is_digit(at[0]):
        return no_digit(parser, at)
    if at[0] == 48:
        at += 1
        if at < end and is_digit(at[0]):
            parser.at = at
            return malformed(parser, BAD_NUMBER)
    else:
        while at < end and is_digit(at[0]):
            at += 1
    if at < end and at[0] == 46:
        number.whole = False
        at += 1
        if at >= end or not is_digit(at[0]):
            return no_digit(parser, at)
        while at < end and is_digit(at[0]):
            at += 1
    if at < end and (at[0] | 0x20) == 101:
        number.whole = False
        at += 1
        if at < end and (at[0] == 43 or at[0] == 45):
            at += 1
        if at >= end or not is_digit(at[0]):
            return no_digit(parser, at)
        while at < end and is_digit(at[0]):
            at += 1
    number.size = at - number.start
    if number.size > MAX_NUMBER:
        return malformed(parser, TOO_LARGE)
    parser.at = at
    return OK


cdef inline int read_word(Parser* parser, const char* word, int size) noexcept nogil:
    cdef int available = <int>min(<int64_t>(parser.end - parser.at), <int64_t>size)
    if memcmp(parser.at, word, available) != 0:
        return malformed(parser, UNEXPECTED)
    parser.at += available
    return OK if available == size else malformed(parser, ENDED)


cdef inline int skip_scalar(Parser* parser) noexcept nogil:
    """
    Check and skip a string, a number or a word; at least one byte is left.
    """
    cdef Text text
    cdef Number number
    cdef uint8_t byte = parser.at[0]
    if byte == 34:
        parser.at += 1
        return read_text(parser, &text)
    if byte == 45 or is_digit(byte):
        return read_number(parser, &number)
    if byte == 116:
        return read_word(parser, b"true", 4)
    if byte == 102:
        return read_word(parser, b"false", 5)
    if byte == 110:
        return read_word(parser, b"null", 4)
    return unexpected(parser)


cdef inline int skip_key(Parser* parser) noexcept nogil:
    """
    Check and skip a key and its colon.
    """
    cdef Text text
    cdef int status
    if parser.at >= parser.end or parser.at[0] != 34:
        return unexpected(parser)
    parser.at += 1
    status = read_text(parser, &text)
    return status if status else skip_colon(parser)


cdef inline int skip_colon(Parser* parser) noexcept nogil:
    if parser.at < parser.end and parser.at[0] == 58:
        parser.at += 1
    else:
        skip_spaces(parser)
        if parser.at >= parser.end or parser.at[0] != 58:
            return unexpected(parser)
        parser.at += 1
    skip_spaces(parser)
    return OK


cdef inline int skip_value(Parser* parser) noexcept nogil:
    if parser.at >= parser.end:
        return malformed(parser, ENDED)
    if parser.at[0] == 123 or parser.at[0] == 91:
        return skip_container(parser)
    return skip_scalar(parser)


cdef int skip_container(Parser* parser) noexcept nogil:
    """
    Check and skip an object or array of any depth, without recursion.
    """
    cdef uint8_t[MAX_DEPTH + 1] is_object
    cdef int depth = 0
    cdef int status
    cdef uint8_t byte
    while True:
        # At a value.
        if parser.at >= parser.end:
            return malformed(parser, ENDED)
        byte = parser.at[0]
        if byte == 123 or byte == 91:
            if parser.depth + depth >= MAX_DEPTH:
                return malformed(parser, TOO_DEEP)
            is_object[depth] = byte == 123
            depth += 1
            parser.at += 1
            skip_spaces(parser)
            if parser.at < parser.end and parser.at[0] == (125 if byte == 123 else 93):
                parser.at += 1
                depth -= 1
            else:
                if byte == 123:
                    status = skip_key(parser)
                    if status:
                        return status
                continue
        else:
            status = skip_scalar(parser)
            if status:
                return status
        # After a value.
        while True:
            if depth == 0:
                return OK
            skip_spaces(parser)
            if parser.at >= parser.end:
                return malformed(parser, ENDED)
            byte = parser.at[0]
            if byte == 44:
                parser.at += 1
                skip_spaces(parser)
                if is_object[depth - 1]:
                    status = skip_key(parser)
                    if status:
                        return status
                break
            if byte != (125 if is_object[depth - 1] else 93):
                return malformed(parser, UNEXPECTED)
            parser.at += 1
            depth -= 1


# --- Numbers --------------------------------------------------------------------------------------

cdef inline bint to_long(const Number* number, int64_t* value) noexcept nogil:
    """
    Convert a whole number; return false if it does not fit into 64 bits.
    """
    cdef const uint8_t* at = number.start
    cdef const uint8_t* end = at + number.size
    cdef bint negative = at[0] == 45
    cdef uint64_t bits = 0
    if negative:
        at += 1
    if end - at > MAX_DIGITS:
        return False
    while at < end:
        bits = bits * 10 + (at[0] - 48)
        at += 1
    if bits > <uint64_t>INT64_MAX + negative:
        return False
    value[0] = <int64_t>(0 - bits) if negative else <int64_t>bits
    return True


cdef double to_double(const Number* number) noexcept nogil:
    """
    Return the nearest double; numbers that are too large become infinite, as in Java.
    """
    cdef const uint8_t* at = number.start
    cdef const uint8_t* end = at + number.size
    cdef bint negative = at[0] == 45
    cdef uint64_t digits = 0
    cdef int count = 0
    cdef int64_t exponent = 0
    cdef int64_t written_exponent = 0
    cdef bint exact = True
    cdef bint negative_exponent = False
    cdef bint fraction = False
    cdef double value
    if negative:
        at += 1
    while at < end:
        if at[0] == 46:
            fraction = True
        elif is_digit(at[0]):
            if count < MAX_DIGITS:
                digits = digits * 10 + (at[0] - 48)
                count += digits != 0
                exponent -= fraction
            else:
                exact = exact and at[0] == 48
                exponent += not fraction
        else:
            break
        at += 1
    if at < end:
        at += 1
        if at[0] == 45 or at[0] == 43:
            negative_exponent = at[0] == 45
            at += 1
        while at < end:
            written_exponent = min(written_exponent * 10 + (at[0] - 48), <int64_t>100_000)
            at += 1
        exponent += -written_exponent if negative_exponent else written_exponent
    if digits == 0:
        return -0.0 if negative and not number.whole else 0.0
    if exact and digits <= <uint64_t>1 << 53 and -22 <= exponent <= 22:
        value = <double>digits
        value = value / POWERS_OF_TEN[-exponent] if exponent < 0 else value * POWERS_OF_TEN[exponent]
    else:
        value = nearest(digits, exponent)
        if not exact and nearest(digits + 1, exponent) != value:
            return slow_double(number)
    return -value if negative else value


cdef double slow_double(const Number* number) noexcept with gil:
    """
    Return the nearest double of a number with many digits, by Python's exact conversion.
    """
    text = number.start[:number.size]
    return PyOS_string_to_double(text, NULL, None)


cdef union DoubleBits:
    double value
    uint64_t bits


cdef double nearest(uint64_t digits, int64_t exponent) noexcept nogil:
    """
    Return the double nearest to digits * 10**exponent (the Eisel-Lemire algorithm).
    """
    cdef uint64_t high, low, more_high, more_low, mantissa
    cdef int zeros, top, shift
    cdef int64_t power
    cdef DoubleBits result
    result.bits = 0
    if exponent < MIN_POWER:
        return 0.0
    if exponent > MAX_POWER:
        result.bits = <uint64_t>0x7FF << 52
        return result.value
    zeros = leading_zeros(digits)
    digits <<= zeros
    wide_product(digits, FIVES_HIGH[exponent - MIN_POWER], &high, &low)
    if high & 0x1FF == 0x1FF:
        # The lower half of the power can matter only in this case.
        wide_product(digits, FIVES_LOW[exponent - MIN_POWER], &more_high, &more_low)
        low += more_high
        if low < more_high:
            high += 1
    top = <int>(high >> 63)
    shift = top + 9
    mantissa = high >> shift
    # 217706 / 2**16 is the binary logarithm of ten.
    power = ((217706 * exponent) >> 16) + 63 + top - zeros + 1023
    if power <= 0:
        if power <= -63:
            return 0.0
        mantissa >>= 1 - power
        mantissa = (mantissa + (mantissa & 1)) >> 1
        # If the mantissa was rounded up to the smallest normal number, its top bit is the
        # exponent's lowest bit.
        result.bits = mantissa
        return result.value
    if low <= 1 and -4 <= exponent <= 23 and mantissa & 3 == 1 and mantissa << shift == high:
        # Exactly half way, so the even neighbour is taken.
        mantissa &= ~<uint64_t>1
    mantissa = (mantissa + (mantissa & 1)) >> 1
    if mantissa >= <uint64_t>1 << 53:
        mantissa = <uint64_t>1 << 52
        power += 1
    if power >= 0x7FF:
        result.bits = <uint64_t>0x7FF << 52
        return result.value
    result.bits = (<uint64_t>power << 52) | (mantissa & ~(<uint64_t>1 << 52))
    return result.value


cdef int to_decimal(
    const uint8_t* at, const uint8_t* end, Node* node, uint128* value
) noexcept nogil:
    """
    Convert a decimal, rounded half up to the scale; return 0, BAD_TEXT or OUT_OF_RANGE.
    """
    cdef const uint8_t* byte
    cdef const uint8_t* digits_end
    cdef bint negative = False
    cdef bint negative_exponent = False
    cdef bint fraction = False
    cdef int64_t exponent = 0
    cdef int64_t significant = 0
    cdef int64_t digits = 0
    cdef int64_t written_exponent = 0
    cdef int64_t kept
    cdef uint128 number = 0
    if at < end and (at[0] == 45 or at[0] == 43):
        negative = at[0] == 45
        at += 1
    byte = at
    while byte < end and (is_digit(byte[0]) or (byte[0] == 46 and not fraction)):
        if byte[0] == 46:
            fraction = True
        else:
            digits += 1
            significant += significant > 0 or byte[0] != 48
            exponent -= fraction
        byte += 1
    if digits == 0:
        return BAD_TEXT
    digits_end = byte
    if byte < end:
        if (byte[0] | 0x20) != 101:
            return BAD_TEXT
        byte += 1
        if byte < end and (byte[0] == 45 or byte[0] == 43):
            negative_exponent = byte[0] == 45
            byte += 1
        if byte >= end:
            return BAD_TEXT
        while byte < end:
            if not is_digit(byte[0]):
                return BAD_TEXT
            written_exponent = min(written_exponent * 10 + (byte[0] - 48), <int64_t>1 << 40)
            byte += 1
        exponent += -written_exponent if negative_exponent else written_exponent
    value[0] = 0
    if significant == 0:
        return 0
    # The number of significant digits up to the last decimal place of the scale.
    kept = significant + exponent + node.scale
    if kept > node.precision:
        return OUT_OF_RANGE
    if kept < 0:
        return 0
    # From here on, `significant` is the number of digits to keep.
    significant = min(kept, significant)
    digits = 0
    while at < digits_end:
        if at[0] != 46 and (digits > 0 or at[0] != 48):
            if digits == significant:
                number += at[0] >= 53
                break
            number = number * 10 + (at[0] - 48)
            digits += 1
        at += 1
    number = number * INTEGER_POWERS[kept - significant]
    if number >= INTEGER_POWERS[node.precision]:
        return OUT_OF_RANGE
    value[0] = 0 - number if negative else number
    return 0


# --- Dates and timestamps -------------------------------------------------------------------------

cdef enum:
    MICROS = 1_000_000
    DAY_SECONDS = 86_400


cdef inline int64_t days_from_civil(int64_t year, int64_t month, int64_t day) noexcept nogil:
    """
    Return the days from 1970-01-01 in the proleptic Gregorian calendar.
    """
    cdef int64_t era, of_era, of_year
    year -= month <= 2
    era = (year if year >= 0 else year - 399) // 400
    of_era = year - era * 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


cdef inline int64_t month_days(int64_t year, int64_t month) noexcept nogil:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month == 4 or month == 6 or month == 9 or month == 11 else 31


cdef inline bint read_digits(
    const uint8_t** at, const uint8_t* end, int min_digits, int max_digits, int64_t* value
) noexcept nogil:
    """
    Read ``min_digits`` to ``max_digits`` digits, not followed by another digit.
    """
    cdef int count = 0
    value[0] = 0
    while at[0] < end and is_digit(at[0][0]):
        count += 1
        if count > max_digits:
            return False
        value[0] = value[0] * 10 + (at[0][0] - 48)
        at[0] += 1
    return count >= min_digits


cdef inline bint take(const uint8_t** at, const uint8_t* end, uint8_t byte) noexcept nogil:
    if at[0] < end and at[0][0] == byte:
        at[0] += 1
        return True
    return False


cdef bint read_date(
    const uint8_t** at, const uint8_t* end, int max_year_digits, int64_t* days
) noexcept nogil:
    """
    Read a year, optionally with month and day, as Spark does: ``[+-]yyyy*[-[m]m[-[d]d]]``.
    """
    cdef int64_t year
    cdef int64_t month = 1
    cdef int64_t day = 1
    cdef bint negative = take(at, end, 45)
    if not negative:
        take(at, end, 43)
    if not read_digits(at, end, 4, max_year_digits, &year):
        return False
    if negative:
        year = -year
    if take(at, end, 45):
        if not read_digits(at, end, 1, 2, &month):
            return False
        if take(at, end, 45) and not read_digits(at, end, 1, 2, &day):
            return False
    if not (1 <= month <= 12 and 1 <= day <= month_days(year, month)):
        return False
    days[0] = days_from_civil(year, month, day)
    return True


cdef inline void trim(const uint8_t** at, const uint8_t** end) noexcept nogil:
    while at[0] < end[0] and (at[0][0] <= 0x20 or at[0][0] == 0x7F):
        at[0] += 1
    while at[0] < end[0] and ((end[0] - 1)[0] <= 0x20 or (end[0] - 1)[0] == 0x7F):
        end[0] -= 1


cdef bint is_whole_date(const uint8_t* at, const uint8_t* end) noexcept nogil:
    """
    Return whether the text of a valid date has a month and a day.
    """
    cdef int dashes = 0
    while at < end:
        dashes += at[0] == 45
        at += 1
    return dashes >= 2


cdef bint to_date(const uint8_t* at, const uint8_t* end, int32_t* value) noexcept nogil:
    cdef int64_t days
    cdef const uint8_t* start
    trim(&at, &end)
    start = at
    if not read_date(&at, end, 7, &days):
        return False
    # Anything may follow a date with a day and then a space or a T.
    if at < end and not (is_whole_date(start, at) and (at[0] == 32 or at[0] == 84)):
        return False
    if not -(<int64_t>1 << 31) <= days < <int64_t>1 << 31:
        return False
    value[0] = <int32_t>days
    return True


cdef bint to_timestamp(
    const uint8_t* at, const uint8_t* end, bint local, int64_t* value
) noexcept nogil:
    """
    Convert Spark's ``yyyy-mm-dd[ T]hh:mm:ss.ssssss[zone]`` to microseconds.

    All parts after the year are optional. A timestamp without a zone is UTC. A ``local`` timestamp
    must not have a zone.
    """
    cdef int64_t days
    cdef int64_t hour = 0
    cdef int64_t minute = 0
    cdef int64_t second = 0
    cdef int64_t micros = 0
    cdef int64_t offset = 0
    cdef int64_t seconds
    cdef int digits = 0
    cdef const uint8_t* start
    trim(&at, &end)
    start = at
    if not read_date(&at, end, 6, &days):
        return False
    if at < end:
        if not (is_whole_date(start, at) and (take(&at, end, 32) or take(&at, end, 84))):
            return False
        if not read_digits(&at, end, 1, 2, &hour):
            return False
        if take(&at, end, 58):
            if not read_digits(&at, end, 1, 2, &minute):
                return False
            if take(&at, end, 58):
                if not read_digits(&at, end, 1, 2, &second):
                    return False
                if take(&at, end, 46):
                    while at < end and is_digit(at[0]):
                        if digits < 6:
                            micros = micros * 10 + (at[0] - 48)
                            digits += 1
                        at += 1
                    while digits < 6:
                        micros *= 10
                        digits += 1
                if at < end and (local or not read_zone(at, end, &offset)):
                    return False
                at = end
    if at < end or hour > 23 or minute > 59 or second > 59:
        return False
    seconds = days * DAY_SECONDS + hour * 3600 + minute * 60 + second - offset
    return to_micros(seconds, micros, value)


cdef inline bint to_micros(int64_t seconds, int64_t micros, int64_t* value) noexcept nogil:
    """
    Combine seconds and microseconds; return false if they do not fit into 64 bits.
    """
    cdef int64_t limit = INT64_MAX // MICROS
    if not -limit - 1 <= seconds <= limit:
        return False
    if seconds == limit and micros > INT64_MAX - limit * MICROS:
        return False
    if seconds < -limit:
        # Only the last microseconds of this second fit.
        if micros < MICROS - (INT64_MAX - limit * MICROS + 1):
            return False
        value[0] = (seconds + 1) * MICROS - (MICROS - micros)
        return True
    value[0] = seconds * MICROS + micros
    return True


cdef bint read_zone(const uint8_t* at, const uint8_t* end, int64_t* offset) noexcept nogil:
    """
    Read a zone: ``Z``; ``UTC``, ``GMT`` or ``UT``; or an offset such as ``+1`` or ``-02:30``, also
    after ``UTC``, ``GMT`` or ``UT``.
    """
    cdef int64_t hours
    cdef int64_t minutes = 0
    cdef int64_t seconds = 0
    cdef bint negative
    cdef const uint8_t* start
    while at < end and at[0] == 32:
        at += 1
    if end - at == 1 and at[0] == 90:
        return True
    if end - at >= 3 and (memcmp(at, b"UTC", 3) == 0 or memcmp(at, b"GMT", 3) == 0):
        at += 3
        if at == end:
            return True
    elif end - at >= 2 and memcmp(at, b"UT", 2) == 0:
        at += 2
        if at == end:
            return True
    negative = take(&at, end, 45)
    if not negative and not take(&at, end, 43):
        return False
    start = at
    if not read_digits(&at, end, 1, 6, &hours):
        return False
    if at - start == 4 and at == end:
        minutes = hours % 100
        hours //= 100
    elif at - start == 6 and at == end:
        seconds = hours % 100
        minutes = hours // 100 % 100
        hours //= 10_000
    elif at - start > 2:
        return False
    elif take(&at, end, 58):
        if not read_digits(&at, end, 2, 2, &minutes):
            return False
        if take(&at, end, 58) and not read_digits(&at, end, 2, 2, &seconds):
            return False
    if at < end or minutes > 59 or seconds > 59:
        return False
    offset[0] = hours * 3600 + minutes * 60 + seconds
    if offset[0] > 18 * 3600:
        return False
    if negative:
        offset[0] = -offset[0]
    return True


# --- Base64 ---------------------------------------------------------------------------------------

cdef inline int base64_digit(uint8_t byte) noexcept nogil:
    if 65 <= byte <= 90:
        return byte - 65
    if 97 <= byte <= 122:
        return byte - 71
    if is_digit(byte):
        return byte + 4
    if byte == 43:
        return 62
    return 63 if byte == 47 else -1


cdef int64_t decode_base64(const uint8_t* at, size_t size, uint8_t* to) noexcept nogil:
    """
    Decode padded base64 (RFC 4648); return the size, or -1 if it is not valid.
    """
    cdef const uint8_t* end = at + size
    cdef uint8_t* start = to
    cdef uint32_t bits
    cdef int digit, i, padding
    if size % 4:
        return -1
    while at < end:
        bits = 0
        padding = 0
        for i in range(4):
            if at[i] == 61 and i >= 2 and end - at == 4:
                padding += 1
                digit = 0
            else:
                digit = -1 if padding else base64_digit(at[i])
            if digit < 0:
                return -1
            bits = (bits << 6) | <uint32_t>digit
        at += 4
        to[0] = <uint8_t>(bits >> 16)
        if padding < 2:
            to[1] = <uint8_t>(bits >> 8)
        if padding < 1:
            to[2] = <uint8_t>bits
        to += 3 - padding
    return to - start


# --- Values ---------------------------------------------------------------------------------------

cdef int decode_value(Parser* parser, Node* node) noexcept nogil:
    """
    Append the value at the parser's position to the column.

    A value that is UNFIT is skipped. After any other error the column may be unfinished.
    """
    cdef uint8_t byte
    cdef int status
    if parser.at >= parser.end:
        return malformed(parser, ENDED)
    byte = parser.at[0]
    if byte == 110:
        status = read_word(parser, b"null", 4)
        return status if status else add_null(parser, node)
    if node.kind == STRUCT and byte == 123:
        return decode_struct(parser, node)
    if node.kind == LIST and byte == 91:
        return decode_list(parser, node)
    if node.kind == MAP and byte == 123:
        return decode_map(parser, node)
    if node.kind == STRING:
        return decode_string(parser, node)
    if byte == 34 and node.kind != BOOLEAN:
        return decode_text(parser, node)
    if byte == 45 or is_digit(byte):
        return decode_number(parser, node)
    if node.kind == BOOLEAN and (byte == 116 or byte == 102):
        status = skip_scalar(parser)
        byte = byte == 116
        return status if status else add_fixed(parser, node, &byte)
    return skip_unfit(parser, node)


cdef int skip_unfit(Parser* parser, Node* node) noexcept nogil:
    cdef const uint8_t* start = parser.at
    cdef int status = skip_value(parser)
    return status if status else unfit(parser, node, start, MISMATCH)


cdef inline int decode_string(Parser* parser, Node* node) noexcept nogil:
    """
    Decode a string; any other value becomes its own JSON text, as in Spark.
    """
    cdef Text text
    cdef int status
    cdef int64_t size
    cdef const uint8_t* start = parser.at
    if start[0] != 34:
        status = skip_value(parser)
        return status if status else add_bytes(parser, node, start, parser.at - start)
    parser.at += 1
    status = read_text(parser, &text)
    if status:
        return status
    if not text.escaped:
        return add_bytes(parser, node, text.start, text.size)
    status = reserve(parser, &node.data, text.size)
    if status:
        return status
    size = unescape(&text, node.data.start + node.data.used)
    if size < 0:
        return unfit(parser, node, start, LONE_SURROGATE)
    node.data.used += size
    status = add_end(parser, node, node.data.used)
    return status if status else add_valid(parser, node, 1)


cdef int decode_text(Parser* parser, Node* node) noexcept nogil:
    """
    Decode a string for a type that is not STRING.
    """
    cdef Text text
    cdef bint is_lone_surrogate
    cdef int status
    cdef const uint8_t* start = parser.at
    parser.at += 1
    status = read_plain(parser, &text, &is_lone_surrogate)
    if status:
        return status
    if is_lone_surrogate:
        return unfit(parser, node, start, LONE_SURROGATE)
    if node.kind == BINARY:
        return decode_binary(parser, node, start, &text)
    if node.kind == DATE or node.kind == TIMESTAMP or node.kind == TIMESTAMP_NTZ:
        return decode_time(parser, node, start, &text)
    if node.kind == DOUBLE or node.kind == FLOAT:
        return decode_special_number(parser, node, start, &text)
    if node.kind == DECIMAL:
        return decode_decimal_text(parser, node, start, &text)
    return unfit(parser, node, start, MISMATCH)


cdef int decode_binary(
    Parser* parser, Node* node, const uint8_t* start, const Text* text
) noexcept nogil:
    cdef int status = reserve(parser, &node.data, text.size)
    cdef int64_t size
    if status:
        return status
    size = decode_base64(text.start, text.size, node.data.start + node.data.used)
    if size < 0:
        return unfit(parser, node, start, BAD_TEXT)
    node.data.used += size
    status = add_end(parser, node, node.data.used)
    return status if status else add_valid(parser, node, 1)


cdef int decode_time(
    Parser* parser, Node* node, const uint8_t* start, const Text* text
) noexcept nogil:
    cdef int64_t micros
    cdef int32_t days
    cdef const uint8_t* end = text.start + text.size
    if node.kind == DATE:
        if not to_date(text.start, end, &days):
            return unfit(parser, node, start, BAD_TEXT)
        return add_fixed(parser, node, &days)
    if not to_timestamp(text.start, end, node.kind == TIMESTAMP_NTZ, &micros):
        return unfit(parser, node, start, BAD_TEXT)
    return add_fixed(parser, node, &micros)


cdef inline bint is_word(const Text* text, const char* word, size_t size) noexcept nogil:
    return text.size == size and memcmp(text.start, word, size) == 0


cdef int decode_special_number(
    Parser* parser, Node* node, const uint8_t* start, const Text* text
) noexcept nogil:
    """
    Decode the names that Spark accepts for numbers that JSON does not have.
    """
    cdef DoubleBits special
    if is_word(text, b"NaN", 3):
        special.bits = <uint64_t>0x7FF8 << 48
    elif (
        is_word(text, b"Infinity", 8) or is_word(text, b"+Infinity", 9)
        or is_word(text, b"+INF", 4)
    ):
        special.bits = <uint64_t>0x7FF << 52
    elif is_word(text, b"-Infinity", 9) or is_word(text, b"-INF", 4):
        special.bits = <uint64_t>0xFFF << 52
    else:
        return unfit(parser, node, start, MISMATCH)
    return add_double(parser, node, special.value)


cdef inline int add_double(Parser* parser, Node* node, double value) noexcept nogil:
    cdef float narrow
    if node.kind == FLOAT:
        narrow = <float>value
        return add_fixed(parser, node, &narrow)
    return add_fixed(parser, node, &value)


cdef int decode_decimal_text(
    Parser* parser, Node* node, const uint8_t* start, Text* text
) noexcept nogil:
    """
    Decode a decimal in quotes, in which Spark ignores commas.
    """
    cdef uint128 value
    cdef size_t i
    cdef size_t size = 0
    cdef int status
    if text.start != parser.scratch.start:
        parser.scratch.used = 0
        status = reserve(parser, &parser.scratch, text.size)
        if status:
            return status
    for i in range(text.size):
        if text.start[i] != 44:
            parser.scratch.start[size] = text.start[i]
            size += 1
    status = OUT_OF_RANGE
    if size <= MAX_NUMBER:
        status = to_decimal(parser.scratch.start, parser.scratch.start + size, node, &value)
    if status:
        return unfit(parser, node, start, status)
    return add_fixed(parser, node, &value)


cdef inline int decode_number(Parser* parser, Node* node) noexcept nogil:
    cdef Number number
    cdef int64_t value
    cdef uint128 decimal
    cdef int kind = node.kind
    cdef int status = read_number(parser, &number)
    if status:
        return status
    if kind == DOUBLE or kind == FLOAT:
        return add_double(parser, node, to_double(&number))
    if kind == DECIMAL:
        status = to_decimal(number.start, number.start + number.size, node, &decimal)
        if status:
            return unfit(parser, node, number.start, status)
        return add_fixed(parser, node, &decimal)
    if not number.whole or not (BYTE <= kind <= LONG or kind == TIMESTAMP):
        return unfit(parser, node, number.start, MISMATCH)
    if not to_long(&number, &value):
        return unfit(parser, node, number.start, OUT_OF_RANGE)
    if kind == TIMESTAMP:
        # Seconds, as in Spark.
        if not to_micros(value, 0, &value):
            return unfit(parser, node, number.start, OUT_OF_RANGE)
        return add_fixed(parser, node, &value)
    return add_whole(parser, node, number.start, value)


cdef inline int add_whole(
    Parser* parser, Node* node, const uint8_t* start, int64_t value
) noexcept nogil:
    cdef int64_t limit = <int64_t>1 << (8 * node.width - 1) if node.width < 8 else 0
    if limit and not -limit <= value < limit:
        return unfit(parser, node, start, OUT_OF_RANGE)
    # Little-endian, as are Arrow's buffers and all supported machines.
    return add_fixed(parser, node, &value)


cdef inline int enter(Parser* parser, uint8_t closing, bint* ended) noexcept nogil:
    """
    Consume the start of an object or array, and its end if it is empty.
    """
    if parser.depth >= MAX_DEPTH:
        return malformed(parser, TOO_DEEP)
    parser.depth += 1
    parser.at += 1
    skip_spaces(parser)
    ended[0] = parser.at < parser.end and parser.at[0] == closing
    if ended[0]:
        parser.at += 1
    return OK


cdef inline int next_item(Parser* parser, uint8_t closing, bint* ended) noexcept nogil:
    """
    Consume the comma after an item, or the end of the object or array.
    """
    cdef uint8_t byte
    if parser.at < parser.end and parser.at[0] <= 0x20:
        skip_spaces(parser)
    if parser.at >= parser.end:
        return malformed(parser, ENDED)
    byte = parser.at[0]
    if byte != 44 and byte != closing:
        return malformed(parser, UNEXPECTED)
    parser.at += 1
    ended[0] = byte == closing
    if not ended[0] and parser.at < parser.end and parser.at[0] <= 0x20:
        skip_spaces(parser)
    return OK


cdef inline int decode_item(
    Parser* parser, Node* node, uint8_t closing, bint* fits, bint* ended
) noexcept nogil:
    """
    Append a value of a list or map, and consume the comma or the end after it.

    After an unfit value the whole list or map is unfit, as in Spark, and the rest is skipped.
    """
    cdef int status = decode_value(parser, node) if fits[0] else skip_value(parser)
    if status == UNFIT:
        fits[0] = False
    elif status:
        return status
    return next_item(parser, closing, ended)


# Unknown fields are rescued as a JSON object, in which they have the same paths as in the record.
# An object or array on a path is begun before its content, and removed if it has no unknown field.


cdef inline Node* rescued_by(Node* node) noexcept nogil:
    """
    Return the STRING that gets the unknown fields of a type, or NULL.
    """
    while node.kind == LIST or node.kind == MAP:
        node = &node.children[node.child_count - 1]
    return (<Lookup*>node.lookup).rescued if node.kind == STRUCT else NULL


cdef int rescue_start(
    Parser* parser, Node* rescued, uint8_t opening, bint is_first, const uint8_t* start
) noexcept nogil:
    """
    Append a bracket or a comma, and the record's text from ``start`` to the parser's position.
    """
    cdef size_t size = parser.at - start
    cdef int status = reserve(parser, &rescued.data, size + 1)
    if status:
        return status
    rescued.data.start[rescued.data.used] = opening if is_first else 44
    memcpy(rescued.data.start + rescued.data.used + 1, start, size)
    rescued.data.used += size + 1
    return OK


cdef int rescue_text(
    Parser* parser, Node* rescued, const char* text, size_t size
) noexcept nogil:
    cdef int status = reserve(parser, &rescued.data, size)
    if status:
        return status
    memcpy(rescued.data.start + rescued.data.used, text, size)
    rescued.data.used += size
    return OK


cdef int decode_elements(
    Parser* parser, Node* child, Node* rescued, bint* fits, bint ended
) noexcept nogil:
    """
    Decode the elements of a list whose objects may have unknown fields.

    The rescued array has an element for each element of the list, so that paths stay the same.
    """
    cdef size_t start = rescued.data.used
    cdef size_t before
    cdef bint rescues = False
    cdef bint is_first = True
    cdef int status
    while not ended:
        status = rescue_start(parser, rescued, 91, is_first, parser.at)
        if status:
            return status
        is_first = False
        before = rescued.data.used
        status = decode_item(parser, child, 93, fits, &ended)
        if status:
            return status
        if rescued.data.used > before:
            rescues = True
        else:
            status = rescue_text(parser, rescued, b"[]" if child.kind == LIST else b"{}", 2)
        if status:
            return status
    if rescues and fits[0]:
        return rescue_text(parser, rescued, b"]", 1)
    rescued.data.used = start
    return OK


cdef int decode_list(Parser* parser, Node* node) noexcept nogil:
    cdef Node* child = node.children
    cdef Node* rescued = rescued_by(child)
    cdef Py_ssize_t first = child.rows
    cdef bint fits = True
    cdef bint ended
    cdef int status = enter(parser, 93, &ended)
    if status:
        return status
    if rescued != NULL:
        status = decode_elements(parser, child, rescued, &fits, ended)
        ended = True
    while status == OK and not ended:
        status = decode_item(parser, child, 93, &fits, &ended)
    if status:
        return status
    parser.depth -= 1
    if not fits:
        cut(child, first)
        return UNFIT
    status = add_end(parser, node, child.rows)
    return status if status else add_valid(parser, node, 1)


cdef int decode_map(Parser* parser, Node* node) noexcept nogil:
    cdef Node* keys = node.children
    cdef Node* values = &node.children[1]
    cdef Node* rescued = rescued_by(values)
    cdef size_t start = rescued.data.used if rescued != NULL else 0
    cdef size_t before, inside
    cdef const uint8_t* name
    cdef bint rescues = False
    cdef Py_ssize_t first = keys.rows
    cdef bint fits = True
    cdef bint ended
    cdef int status = enter(parser, 125, &ended)
    if status:
        return status
    while not ended:
        if parser.at >= parser.end or parser.at[0] != 34:
            return unexpected(parser)
        name = parser.at
        if fits:
            status = decode_string(parser, keys)
            if status == UNFIT:
                fits = False
            elif status:
                return status
            status = skip_colon(parser)
        else:
            status = skip_key(parser)
        if status == OK and rescued != NULL:
            before = rescued.data.used
            status = rescue_start(parser, rescued, 123, not rescues, name)
            inside = rescued.data.used
        if status:
            return status
        status = decode_item(parser, values, 125, &fits, &ended)
        if status:
            return status
        if rescued != NULL:
            if rescued.data.used > inside:
                rescues = True
            else:
                rescued.data.used = before
    parser.depth -= 1
    if not fits:
        if rescued != NULL:
            rescued.data.used = start
        cut(keys, first)
        cut(values, first)
        return UNFIT
    if rescues:
        status = rescue_text(parser, rescued, b"}", 1)
        if status:
            return status
    status = add_end(parser, node, keys.rows)
    return status if status else add_valid(parser, node, 1)


cdef inline uint32_t hash_bytes(const uint8_t* start, size_t size) noexcept nogil:
    cdef uint32_t code = 2_166_136_261
    cdef size_t i
    for i in range(size):
        code = (code ^ start[i]) * <uint32_t>16_777_619
    return code ^ (code >> 15)


cdef int32_t find_child(Node* node, const uint8_t* name, Py_ssize_t size) noexcept nogil:
    cdef Lookup* lookup = <Lookup*>node.lookup
    cdef uint32_t index = hash_bytes(name, size) & lookup.mask
    cdef int32_t child
    while True:
        child = lookup.table[index]
        if child < 0:
            return -1
        if (
            node.children[child].name_size == size
            and memcmp(node.children[child].name, name, size) == 0
        ):
            return child
        index = (index + 1) & lookup.mask


cdef inline int read_field(Parser* parser, Node* node, int* slot, int32_t* child) noexcept nogil:
    """
    Read a key after its opening quote, and find its field; -1 means that it is not in the type.

    Most objects have their keys in the same order, so the key that came next in the previous object
    is compared first.
    """
    cdef Text text
    cdef Slot* slots = (<Lookup*>node.lookup).slots
    cdef Slot* expected
    cdef bint is_lone_surrogate
    cdef int status
    cdef int i = slot[0]
    cdef int last = min(i + MAX_COMPARED, SLOTS)
    cdef const uint8_t* start = parser.at
    while i < last:
        expected = &slots[i]
        if (
            expected.size > 0 and expected.size <= parser.end - start
            and memcmp(start, expected.text, expected.size) == 0
        ):
            parser.at += expected.size
            slot[0] = i + 1
            child[0] = expected.child
            return OK
        i += 1
    status = read_text(parser, &text)
    if status:
        return status
    if text.escaped:
        parser.at = start
        status = read_plain(parser, &text, &is_lone_surrogate)
        if status:
            return status
        # No field name contains half of a surrogate pair.
        child[0] = -1 if is_lone_surrogate else find_child(node, text.start, text.size)
        return OK
    child[0] = find_child(node, text.start, text.size)
    if slot[0] < SLOTS:
        if text.size < SLOT_TEXT:
            expected = &slots[slot[0]]
            # With the quote.
            memcpy(expected.text, text.start, text.size + 1)
            expected.size = <int32_t>text.size + 1
            expected.child = child[0]
        slot[0] += 1
    return OK


cdef int decode_rescuing(
    Parser* parser, Node* field, Node* rescued, const uint8_t* name, bint* rescues
) noexcept nogil:
    """
    Decode a field whose objects may have unknown fields.
    """
    cdef size_t before = rescued.data.used
    cdef size_t inside
    cdef int status = rescue_start(parser, rescued, 123, not rescues[0], name)
    if status:
        return status
    inside = rescued.data.used
    status = decode_value(parser, field)
    if rescued.data.used > inside and status == OK:
        rescues[0] = True
    else:
        rescued.data.used = before
    return status


cdef int decode_struct(Parser* parser, Node* node) noexcept nogil:
    cdef Py_ssize_t row = node.rows
    cdef Node* rescued = (<Lookup*>node.lookup).rescued
    cdef const uint8_t* start
    cdef bint rescues = False
    cdef Node* field
    cdef int32_t child
    cdef int i
    cdef int slot = 0
    cdef bint ended
    cdef int status = enter(parser, 125, &ended)
    if status:
        return status
    while not ended:
        if parser.at >= parser.end or parser.at[0] != 34:
            return unexpected(parser)
        start = parser.at
        parser.at += 1
        status = read_field(parser, node, &slot, &child)
        if status:
            return status
        status = skip_colon(parser)
        if status:
            return status
        if child < 0:
            status = skip_value(parser)
            if status == OK and rescued != NULL:
                status = rescue_start(parser, rescued, 123, not rescues, start)
                rescues = True
        else:
            field = &node.children[child]
            if field.rows > row:
                # The last of several fields with one name wins.
                cut(field, row)
            if rescued != NULL and rescued_by(field) != NULL:
                status = decode_rescuing(parser, field, rescued, start, &rescues)
            else:
                status = decode_value(parser, field)
            if status == UNFIT:
                status = add_null(parser, field)
        if status:
            return status
        status = next_item(parser, 125, &ended)
        if status:
            return status
    parser.depth -= 1
    if rescues:
        if rescued == &node.children[node.child_count - 1]:
            # This struct is the whole value: the row's text of unknown fields ends here.
            status = add_bytes(parser, rescued, b"}", 1)
        else:
            status = rescue_text(parser, rescued, b"}", 1)
        if status:
            return status
    return fill_missing(parser, node, row)


cdef int decode_record(Parser* parser, Node* root) noexcept nogil:
    """
    Append one record, or the value of a bad record.
    """
    cdef Py_ssize_t row = root.rows
    cdef int status
    parser.depth = 0
    begin_record(parser)
    skip_spaces(parser)
    if parser.at == parser.end:
        return add_null(parser, root)
    status = decode_value(parser, root)
    if status == OK or status == UNFIT:
        skip_spaces(parser)
        if parser.at < parser.end:
            status = malformed(parser, TRAILING)
    if status == OK or status >= FULL:
        return status
    cut(root, row)
    return add_default(parser, root)


cdef int build_lookup(Node* node, Node* rescued=NULL) except -1:
    """
    Build the lookup table of each struct in a type; a table and its slots are one block.

    ``rescued`` gets the unknown fields of all structs; it is the last field of one of them.
    """
    cdef int fields = node.child_count
    cdef uint32_t room = 4
    cdef uint32_t index
    cdef Lookup* lookup
    cdef int i
    for i in range(node.child_count):
        build_lookup(&node.children[i], rescued)
    if node.kind != STRUCT:
        return 0
    if rescued != NULL and fields and rescued == &node.children[fields - 1]:
        fields -= 1
    while room < 2 * <uint32_t>node.child_count:
        room *= 2
    lookup = <Lookup*>calloc(1, sizeof(Lookup) + room * sizeof(int32_t))
    if lookup == NULL:
        raise MemoryError
    node.lookup = lookup
    lookup.mask = room - 1
    lookup.table = <int32_t*>(lookup + 1)
    memset(lookup.table, 0xFF, room * sizeof(int32_t))
    lookup.rescued = rescued
    for i in range(fields):
        index = hash_bytes(node.children[i].name, node.children[i].name_size) & lookup.mask
        while lookup.table[index] >= 0:
            index = (index + 1) & lookup.mask
        lookup.table[index] = i
    return 0


@cython.final
cdef class JsonDecoder(ColumnDecoder):
    """
    Decodes JSON texts. With ``rescues`` the plan is a struct, whose last field gets the unknown
    fields of each text, at any depth, as the text of a JSON object.
    """

    def __cinit__(
        self, plan, size_t max_bytes, bint stops, int id_bytes=0, bint rescues=False
    ):
        self.id_bytes = id_bytes
        if rescues and (
            self.root.kind != STRUCT
            or self.root.child_count < 1
            or self.root.children[self.root.child_count - 1].kind != STRING
        ):
            raise ValueError("a plan has no field for unknown fields")
        build_lookup(
            &self.root, &self.root.children[self.root.child_count - 1] if rescues else NULL
        )

    cdef int append_record(self) noexcept nogil:
        cdef Parser* parser = &self.parser
        # No JSON text starts with a zero byte. The schema is not needed to decode it.
        if self.id_bytes and parser.end - parser.at > self.id_bytes and parser.at[0] == 0:
            parser.at += 1 + self.id_bytes
        return decode_record(&self.parser, &self.root)
