# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, embedsignature=True
"""
Encodes Arrow columns as JSON texts, or in the binary encodings of Avro and Protobuf, without a
Python object per value.

The addresses of the columns are trusted: they must belong to Arrow arrays that are alive.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport (
    INT32_MAX, INT64_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
)
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memmove, memset

cdef extern from *:
    """
    typedef __int128 pykafka_int128;
    typedef unsigned __int128 pykafka_uint128;
    """
    ctypedef long long int128 "pykafka_int128"
    ctypedef unsigned long long uint128 "pykafka_uint128"

# The kinds of a column, as column_types.py numbers them.
cdef enum:
    STRUCT = 0
    LIST = 1
    MAP = 2
    STRING = 3
    BINARY = 4
    BOOLEAN = 5
    BYTE = 6
    SHORT = 7
    INTEGER = 8
    LONG = 9
    FLOAT = 10
    DOUBLE = 11
    DECIMAL = 12
    DATE = 13
    TIMESTAMP = 14
    TIMESTAMP_NTZ = 15

# The outputs, as encoder_plan.py, avro_encoder_plan.py and protobuf_encoder_plan.py number them.
cdef enum:
    JSON = 0
    A_BOOLEAN = 1
    A_INTEGER = 2
    A_FLOAT = 3
    A_DOUBLE = 4
    A_BYTES = 5
    A_STRING = 6
    A_ENUM = 7
    A_FIXED = 8
    A_DECIMAL_BYTES = 9
    A_DECIMAL_FIXED = 10
    A_MILLIS = 11
    A_NANOS = 12
    A_RECORD = 13
    A_ARRAY = 14
    A_MAP = 15
    # A union from a struct: the only field that is not null is the branch.
    A_MEMBERS = 16
    # The same bytes in every record.
    A_CONSTANT = 17
    # Whole numbers of Protobuf: int, uint, sint, fixed and sfixed.
    P_INT = 18
    P_UINT = 19
    P_SINT = 20
    P_FIXED = 21
    P_SFIXED = 22
    P_BOOL = 23
    P_FLOAT = 24
    P_DOUBLE = 25
    P_STRING = 26
    P_BYTES = 27
    # An enum, from a symbol or from its number.
    P_ENUM = 28
    P_ENUM_NUMBER = 29
    P_TIMESTAMP = 30
    P_DURATION = 31
    P_MESSAGE = 32
    P_GROUP = 33
    P_REPEATED = 34
    P_PACKED = 35
    P_MAP = 36
    # A union of Avro: each value is written as the first branch that can hold it.
    A_CHOICE = 37

# The values that a field of Protobuf omits, as protobuf_encoder_plan.py numbers them.
cdef enum:
    OMITS_NULL = 0
    OMITS_ZERO = 1

cdef enum:
    OK = 0
    UNFIT = 1
    NO_MEMORY = 2

# The reasons why a value cannot be encoded; encoded_column.py has their texts.
cdef enum:
    IS_NULL = 1
    NOT_UTF8 = 2
    TOO_MANY_DIGITS = 3
    UNKNOWN_SYMBOL = 4
    WRONG_SIZE = 5
    OUT_OF_RANGE = 6
    NOT_FINITE = 7
    TOO_LARGE = 8
    SECOND_OF_ONEOF = 9
    SECOND_OF_UNION = 10

cdef struct Column:
    const uint8_t* validity
    const uint8_t* ends
    const uint8_t* data
    Py_ssize_t offset
    # Whether the ends have 64 bits.
    bint wide


cdef struct Symbol:
    uint8_t* text
    Py_ssize_t size
    int64_t number


cdef struct Node:
    int kind
    int output
    int column
    int number
    # The union branches of null and of other values, or -1.
    int null_branch
    int branch
    int size
    int precision
    int scale
    int child_count
    Node* children
    # The name of a field as JSON, with a comma before and a colon after it; or a constant.
    Symbol text
    int symbol_count
    Symbol* symbols


cdef struct State:
    Column* columns
    int column_count
    uint8_t* out
    size_t used
    size_t room
    bint keeps_nulls
    bint needs_finite
    # The first value that cannot be encoded.
    int reason
    int node


cdef uint128[39] POWERS_OF_TEN

# For the shortest decimal of a double: 10**k from k = -292 to 324, rounded up to 128 bits.
cdef enum:
    MIN_POWER = -292
    MAX_POWER = 324

cdef uint64_t[617] POWERS_HIGH
cdef uint64_t[617] POWERS_LOW

cdef uint8_t[256] PLAIN
cdef const char* HEX = b"0123456789ABCDEF"
cdef const char* BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def _fill_tables():
    cdef int i
    for i in range(256):
        PLAIN[i] = 0x20 <= i < 0x80 and i != 0x22 and i != 0x5C
    POWERS_OF_TEN[0] = 1
    for i in range(1, 39):
        POWERS_OF_TEN[i] = POWERS_OF_TEN[i - 1] * 10
    for k in range(MIN_POWER, MAX_POWER + 1):
        if k >= 0:
            power = 10**k
            shift = power.bit_length() - 128
            scaled = power << -shift if shift <= 0 else -(-power >> shift)
        else:
            power = 10**-k
            # ceil(2**s / 10**-k) has 128 bits.
            scaled = -(-(1 << (127 + power.bit_length())) // power)
        POWERS_HIGH[k - MIN_POWER] = scaled >> 64
        POWERS_LOW[k - MIN_POWER] = scaled & 0xFFFFFFFFFFFFFFFF


_fill_tables()

# --- Output ---------------------------------------------------------------------------------------


cdef int grow(State* state, size_t more) noexcept nogil:
    cdef size_t room = max(2 * state.room, max(state.used + more, <size_t>4096))
    cdef uint8_t* moved = <uint8_t*>realloc(state.out, room)
    if moved == NULL:
        return NO_MEMORY
    state.out = moved
    state.room = room
    return OK


cdef inline int reserve(State* state, size_t more) noexcept nogil:
    if state.used + more <= state.room:
        return OK
    return grow(state, more)


cdef inline int put(State* state, const void* start, size_t size) noexcept nogil:
    cdef int status = reserve(state, size)
    if status:
        return status
    if size:
        memcpy(state.out + state.used, start, size)
        state.used += size
    return OK


cdef inline int put_byte(State* state, uint8_t byte) noexcept nogil:
    cdef int status = reserve(state, 1)
    if status:
        return status
    state.out[state.used] = byte
    state.used += 1
    return OK


cdef int unfit(State* state, const Node* node, int reason) noexcept nogil:
    state.reason = reason
    state.node = node.number
    return UNFIT


# --- Columns --------------------------------------------------------------------------------------


cdef inline bint is_null(const Column* column, Py_ssize_t row) noexcept nogil:
    cdef Py_ssize_t bit = column.offset + row
    return column.validity != NULL and not (column.validity[bit >> 3] >> (bit & 7)) & 1


cdef inline int64_t end_at(const Column* column, Py_ssize_t row) noexcept nogil:
    """
    Return the start of a variable-size value, which is the end of the one before it.
    """
    if column.wide:
        return (<const int64_t*>column.ends)[column.offset + row]
    return (<const int32_t*>column.ends)[column.offset + row]


cdef inline bint bit_at(const Column* column, Py_ssize_t row) noexcept nogil:
    cdef Py_ssize_t bit = column.offset + row
    return (column.data[bit >> 3] >> (bit & 7)) & 1


cdef inline int64_t integer_at(const Column* column, int kind, Py_ssize_t row) noexcept nogil:
    cdef Py_ssize_t index = column.offset + row
    if kind == BYTE:
        return (<const int8_t*>column.data)[index]
    if kind == SHORT:
        return (<const int16_t*>column.data)[index]
    if kind == INTEGER or kind == DATE:
        return (<const int32_t*>column.data)[index]
    return (<const int64_t*>column.data)[index]


cdef inline int128 decimal_at(const Column* column, Py_ssize_t row) noexcept nogil:
    cdef int128 value
    memcpy(&value, column.data + 16 * (column.offset + row), 16)
    return value


cdef inline double double_at(const Column* column, int kind, Py_ssize_t row) noexcept nogil:
    if kind == FLOAT:
        return (<const float*>column.data)[column.offset + row]
    return (<const double*>column.data)[column.offset + row]


cdef Py_ssize_t utf8_size(const uint8_t* at, const uint8_t* end) noexcept nogil:
    """
    Return the size of a character, or minus the number of invalid bytes that U+FFFD replaces.

    As in Java, half of a surrogate pair is replaced as a whole; otherwise, the longest prefix of a
    character is replaced.
    """
    cdef uint8_t first = at[0]
    cdef Py_ssize_t left = end - at
    cdef uint8_t low = 0x80
    cdef uint8_t high = 0xBF
    cdef Py_ssize_t size, i
    if first < 0x80:
        return 1
    if first < 0xC2 or first > 0xF4:
        return -1
    size = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    if first == 0xE0:
        low = 0xA0
    elif first == 0xF0:
        low = 0x90
    elif first == 0xF4:
        high = 0x8F
    if left < 2 or at[1] < low or at[1] > high:
        return -1
    for i in range(2, size):
        if left <= i or (at[i] & 0xC0) != 0x80:
            return -i
    if first == 0xED and at[1] > 0x9F:
        return -3
    return size


# --- JSON -----------------------------------------------------------------------------------------


cdef inline bint has_special(uint64_t word) noexcept nogil:
    """
    Return whether one of eight bytes may be a quote, a backslash or a control character, or not
    ASCII.
    """
    cdef uint64_t ones = <uint64_t>0x0101010101010101
    cdef uint64_t marks = word | (word - 0x20 * ones)
    marks |= ((word ^ (0x22 * ones)) - ones) | ((word ^ (0x5C * ones)) - ones)
    return (marks & (0x80 * ones)) != 0


cdef const uint8_t* plain_end(const uint8_t* at, const uint8_t* end) noexcept nogil:
    """
    Return the end of the characters that need no escape in a JSON string.
    """
    cdef uint64_t word
    cdef Py_ssize_t size
    while True:
        while end - at >= 8:
            memcpy(&word, at, 8)
            if has_special(word):
                break
            at += 8
        if at == end:
            return at
        if PLAIN[at[0]]:
            at += 1
        elif at[0] >= 0x80:
            size = utf8_size(at, end)
            if size < 0:
                return at
            at += size
        else:
            return at


cdef int put_escape(State* state, uint8_t byte) noexcept nogil:
    cdef uint8_t[6] text
    text[0] = 0x5C
    if byte == 0x22 or byte == 0x5C:
        text[1] = byte
    elif byte == 8:
        text[1] = c"b"
    elif byte == 9:
        text[1] = c"t"
    elif byte == 10:
        text[1] = c"n"
    elif byte == 12:
        text[1] = c"f"
    elif byte == 13:
        text[1] = c"r"
    else:
        text[1] = c"u"
        text[2] = c"0"
        text[3] = c"0"
        text[4] = <uint8_t>HEX[byte >> 4]
        text[5] = <uint8_t>HEX[byte & 15]
        return put(state, text, 6)
    return put(state, text, 2)


cdef int json_text(State* state, const uint8_t* at, const uint8_t* end) noexcept nogil:
    cdef const uint8_t* stop
    cdef int status = reserve(state, end - at + 2)
    if status:
        return status
    put_byte(state, 0x22)
    while True:
        stop = plain_end(at, end)
        status = put(state, at, stop - at)
        at = stop
        if status or at == end:
            break
        if at[0] < 0x80:
            status = put_escape(state, at[0])
            at += 1
        else:
            # U+FFFD takes the place of invalid bytes, as in the JVM.
            status = put(state, b"\xef\xbf\xbd", 3)
            at -= utf8_size(at, end)
        if status:
            break
    return status if status else put_byte(state, 0x22)


cdef int json_base64(State* state, const uint8_t* at, Py_ssize_t size) noexcept nogil:
    cdef uint32_t bits
    cdef Py_ssize_t i = 0
    cdef uint8_t* to
    cdef int status = reserve(state, 4 * <size_t>((size + 2) // 3) + 2)
    if status:
        return status
    put_byte(state, 0x22)
    to = state.out + state.used
    while size - i >= 3:
        bits = <uint32_t>at[i] << 16 | <uint32_t>at[i + 1] << 8 | at[i + 2]
        to[0] = <uint8_t>BASE64[bits >> 18]
        to[1] = <uint8_t>BASE64[bits >> 12 & 63]
        to[2] = <uint8_t>BASE64[bits >> 6 & 63]
        to[3] = <uint8_t>BASE64[bits & 63]
        to += 4
        i += 3
    if i < size:
        bits = <uint32_t>at[i] << 16 | (<uint32_t>at[i + 1] << 8 if size - i == 2 else 0)
        to[0] = <uint8_t>BASE64[bits >> 18]
        to[1] = <uint8_t>BASE64[bits >> 12 & 63]
        to[2] = <uint8_t>BASE64[bits >> 6 & 63] if size - i == 2 else 0x3D
        to[3] = 0x3D
        to += 4
    state.used = to - state.out
    return put_byte(state, 0x22)


cdef inline int digits_of(uint8_t* to, uint64_t value, int minimum) noexcept nogil:
    """
    Write a number with at least ``minimum`` digits; return the number of digits.
    """
    cdef uint8_t[20] digits
    cdef int count = 0
    while value or count < minimum:
        digits[19 - count] = <uint8_t>(0x30 + value % 10)
        value //= 10
        count += 1
    memcpy(to, digits + 20 - count, count)
    return count


cdef int json_integer(State* state, int64_t value) noexcept nogil:
    cdef uint64_t magnitude = <uint64_t>value
    cdef int status = reserve(state, 20)
    if status:
        return status
    if value < 0:
        put_byte(state, c"-")
        magnitude = 0 - magnitude
    state.used += digits_of(state.out + state.used, magnitude, 1)
    return OK


cdef int json_decimal(State* state, int128 value, int scale) noexcept nogil:
    cdef uint8_t[48] digits
    cdef uint128 magnitude = <uint128>value
    cdef uint64_t ten_to_19 = <uint64_t>10000000000000000000u
    cdef int count, whole
    cdef int status = reserve(state, 96)
    if status:
        return status
    if value < 0:
        put_byte(state, c"-")
        magnitude = 0 - magnitude
    # At least one digit before the point.
    if magnitude >= ten_to_19:
        count = digits_of(digits, <uint64_t>(magnitude // ten_to_19), 1)
        count += digits_of(digits + count, <uint64_t>(magnitude % ten_to_19), 19)
    else:
        count = digits_of(digits, <uint64_t>magnitude, 1)
    if count <= scale:
        whole = scale + 1 - count
        for count in range(count - 1, -1, -1):
            digits[count + whole] = digits[count]
        memset(digits, 0x30, whole)
        count = scale + 1
    put(state, digits, count - scale)
    if scale:
        put_byte(state, c".")
        put(state, digits + count - scale, scale)
    return OK


cdef inline uint64_t scaled_up(uint64_t high, uint64_t low, uint64_t factor) noexcept nogil:
    """
    Return the upper 64 bits of a product of 192 bits, rounded to odd: odd if it is not exact.
    """
    cdef uint128 upper = <uint128>high * factor + <uint64_t>(<uint128>low * factor >> 64)
    return <uint64_t>(upper >> 64) | (<uint64_t>upper > 1)


cdef uint64_t shortest_decimal(
    uint64_t fraction, int exponent, int fraction_bits, int bias, int* power
) noexcept nogil:
    """
    Return the shortest decimal that parses to the same number, and its power of ten (Schubfach).

    Of several shortest decimals, the closest one is chosen. ``exponent`` is the biased exponent of
    IEEE 754.
    """
    cdef uint64_t significand = fraction
    cdef int q = 1 - bias
    cdef bint is_closer = fraction == 0 and exponent > 1
    cdef int k, h
    cdef uint64_t high, low, lower, value, upper, tenth, quarter
    cdef bint below, above, is_odd
    if exponent:
        significand |= <uint64_t>1 << fraction_bits
        q = exponent - bias
        if -fraction_bits <= q <= 0 and significand & ((<uint64_t>1 << -q) - 1) == 0:
            power[0] = 0
            return significand >> -q
    is_odd = significand & 1
    k = (q * 1262611 - (524031 if is_closer else 0)) >> 22
    h = q + ((-k * 1741647) >> 19) + 1
    high, low = POWERS_HIGH[-k - MIN_POWER], POWERS_LOW[-k - MIN_POWER]
    # The number and the ends of the interval that rounds to it, times four.
    lower = scaled_up(high, low, (4 * significand - 2 + is_closer) << h) + is_odd
    value = scaled_up(high, low, (4 * significand) << h)
    upper = scaled_up(high, low, (4 * significand + 2) << h) - is_odd
    quarter = value // 4
    if quarter >= 10:
        tenth = quarter // 10
        below = lower <= 40 * tenth
        above = 40 * tenth + 40 <= upper
        if below != above:
            power[0] = k + 1
            return tenth + above
    power[0] = k
    below = lower <= 4 * quarter
    above = 4 * quarter + 4 <= upper
    if below != above:
        return quarter + above
    # Both or neither fit: take the closer one, or the even one if both are equally close.
    above = value & 3 > 2 or (value & 3 == 2 and quarter & 1)
    return quarter + above


cdef int json_special(State* state, const Node* node, bint is_nan, bint negative) noexcept nogil:
    if state.needs_finite:
        return unfit(state, node, NOT_FINITE)
    if is_nan:
        return put(state, b'"NaN"', 5)
    return put(state, b'"-Infinity"', 11) if negative else put(state, b'"Infinity"', 10)


cdef int json_float(State* state, const Node* node, const Column* column, Py_ssize_t row) noexcept nogil:
    cdef uint64_t bits, fraction
    cdef uint32_t float_bits
    cdef int fraction_bits, exponent, top, bias, power, count, point
    cdef uint8_t[20] digits
    cdef uint64_t value
    cdef int status
    if node.kind == FLOAT:
        memcpy(&float_bits, column.data + 4 * (column.offset + row), 4)
        bits, fraction_bits, top, bias = float_bits, 23, 255, 150
    else:
        memcpy(&bits, column.data + 8 * (column.offset + row), 8)
        fraction_bits, top, bias = 52, 2047, 1075
    fraction = bits & ((<uint64_t>1 << fraction_bits) - 1)
    exponent = <int>(bits >> fraction_bits) & top
    bits = bits >> (31 if node.kind == FLOAT else 63)
    if exponent == top:
        return json_special(state, node, fraction != 0, bits)
    status = reserve(state, 40)
    if status:
        return status
    if bits:
        put_byte(state, c"-")
    if exponent == 0 and fraction == 0:
        return put(state, b"0.0", 3)
    value = shortest_decimal(fraction, exponent, fraction_bits, bias, &power)
    while value % 10 == 0:
        value //= 10
        power += 1
    count = digits_of(digits, value, 1)
    # As Java writes it: plain from 10**-3 to 10**7, otherwise with an exponent.
    point = count + power
    if -3 < point <= 0:
        put(state, b"0.00", 2 - point)
        return put(state, digits, count)
    if 0 < point <= 7:
        put(state, digits, min(count, point))
        if count > point:
            put_byte(state, c".")
            return put(state, digits + point, count - point)
        put(state, b"000000", point - count)
        return put(state, b".0", 2)
    put_byte(state, digits[0])
    put_byte(state, c".")
    if count > 1:
        put(state, digits + 1, count - 1)
    else:
        put_byte(state, c"0")
    put_byte(state, c"E")
    return json_integer(state, point - 1)


cdef int put_date(State* state, int64_t days) noexcept nogil:
    """
    Write a date of the proleptic Gregorian calendar, as Java does; the room must be reserved.
    """
    cdef int64_t shifted = days + 719468
    cdef int64_t era = (shifted if shifted >= 0 else shifted - 146096) // 146097
    cdef int64_t in_era = shifted - era * 146097
    cdef int64_t year_of_era = (in_era - in_era // 1460 + in_era // 36524 - in_era // 146096) // 365
    cdef int64_t in_year = in_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    cdef int64_t shifted_month = (5 * in_year + 2) // 153
    cdef int64_t day = in_year - (153 * shifted_month + 2) // 5 + 1
    cdef int64_t month = shifted_month + 3 if shifted_month < 10 else shifted_month - 9
    cdef int64_t year = year_of_era + era * 400 + (month <= 2)
    if year < 0:
        put_byte(state, c"-")
        year = -year
    elif year > 9999:
        put_byte(state, c"+")
    state.used += digits_of(state.out + state.used, year, 4)
    put_byte(state, c"-")
    state.used += digits_of(state.out + state.used, month, 2)
    put_byte(state, c"-")
    state.used += digits_of(state.out + state.used, day, 2)
    return OK


cdef int json_time(State* state, int kind, int64_t value) noexcept nogil:
    cdef int64_t day_us = <int64_t>86400 * 1000000
    cdef int64_t days = value
    cdef int64_t rest = 0
    cdef int status = reserve(state, 64)
    if status:
        return status
    put_byte(state, 0x22)
    if kind != DATE:
        days = value // day_us - (value % day_us < 0)
        rest = value - days * day_us
    put_date(state, days)
    if kind != DATE:
        put_byte(state, c"T")
        state.used += digits_of(state.out + state.used, rest // <int64_t>3600000000, 2)
        put_byte(state, c":")
        state.used += digits_of(state.out + state.used, rest // 60000000 % 60, 2)
        put_byte(state, c":")
        state.used += digits_of(state.out + state.used, rest // 1000000 % 60, 2)
        put_byte(state, c".")
        if rest % 1000:
            state.used += digits_of(state.out + state.used, rest % 1000000, 6)
        else:
            state.used += digits_of(state.out + state.used, rest // 1000 % 1000, 3)
        if kind == TIMESTAMP:
            put_byte(state, c"Z")
    return put_byte(state, 0x22)


cdef int json_struct(State* state, const Node* node, Py_ssize_t row) noexcept nogil:
    cdef int i, status
    cdef bint is_first = True
    cdef bint missing
    cdef const Node* child
    status = put_byte(state, c"{")
    for i in range(node.child_count):
        if status:
            return status
        child = &node.children[i]
        missing = is_null(&state.columns[child.column], row)
        if missing and not state.keeps_nulls:
            continue
        status = put(state, child.text.text + is_first, child.text.size - is_first)
        is_first = False
        if status:
            return status
        status = put(state, b"null", 4) if missing else json_value(state, child, row)
    return status if status else put_byte(state, c"}")


cdef int json_element(State* state, const Node* node, Py_ssize_t row) noexcept nogil:
    if is_null(&state.columns[node.column], row):
        return put(state, b"null", 4)
    return json_value(state, node, row)


cdef int json_list(State* state, const Node* node, Py_ssize_t start, Py_ssize_t end) noexcept nogil:
    cdef Py_ssize_t i
    cdef int status = put_byte(state, c"[")
    for i in range(start, end):
        if status == OK and i > start:
            status = put_byte(state, c",")
        if status:
            return status
        status = json_element(state, &node.children[0], i)
    return status if status else put_byte(state, c"]")


cdef int json_map(State* state, const Node* node, Py_ssize_t start, Py_ssize_t end) noexcept nogil:
    cdef Py_ssize_t i
    cdef int status = put_byte(state, c"{")
    for i in range(start, end):
        if status == OK and i > start:
            status = put_byte(state, c",")
        if status:
            return status
        status = json_value(state, &node.children[0], i)
        if status == OK:
            status = put_byte(state, c":")
        if status:
            return status
        status = json_element(state, &node.children[1], i)
    return status if status else put_byte(state, c"}")


cdef int json_value(State* state, const Node* node, Py_ssize_t row) noexcept nogil:
    """
    Write a value that is not null.
    """
    cdef const Column* column = &state.columns[node.column]
    cdef int kind = node.kind
    cdef Py_ssize_t start, end
    if kind == STRUCT:
        return json_struct(state, node, row)
    if kind <= BINARY:
        start, end = end_at(column, row), end_at(column, row + 1)
        if kind == LIST:
            return json_list(state, node, start, end)
        if kind == MAP:
            return json_map(state, node, start, end)
        if kind == STRING:
            return json_text(state, column.data + start, column.data + end)
        return json_base64(state, column.data + start, end - start)
    if kind == BOOLEAN:
        return put(state, b"true", 4) if bit_at(column, row) else put(state, b"false", 5)
    if kind <= LONG:
        return json_integer(state, integer_at(column, kind, row))
    if kind <= DOUBLE:
        return json_float(state, node, column, row)
    if kind == DECIMAL:
        return json_decimal(state, decimal_at(column, row), node.scale)
    return json_time(state, kind, integer_at(column, kind, row))


# --- Avro -----------------------------------------------------------------------------------------


cdef inline int put_varint(State* state, uint64_t bits) noexcept nogil:
    cdef int status = reserve(state, 10)
    if status:
        return status
    while bits > 0x7F:
        state.out[state.used] = <uint8_t>(bits & 0x7F | 0x80)
        state.used += 1
        bits >>= 7
    state.out[state.used] = <uint8_t>bits
    state.used += 1
    return OK


cdef inline int put_long(State* state, int64_t value) noexcept nogil:
    return put_varint(state, (<uint64_t>value << 1) ^ <uint64_t>(value >> 63))


cdef bint is_utf8(const uint8_t* at, Py_ssize_t size) noexcept nogil:
    cdef const uint8_t* end = at + size
    cdef uint64_t word
    cdef Py_ssize_t step
    while at < end:
        if end - at >= 8:
            memcpy(&word, at, 8)
            if not word & <uint64_t>0x8080808080808080:
                at += 8
                continue
        step = utf8_size(at, end)
        if step < 0:
            return False
        at += step
    return True


cdef int avro_text(State* state, const Node* node, const uint8_t* at, Py_ssize_t size) noexcept nogil:
    cdef int status
    if not is_utf8(at, size):
        return unfit(state, node, NOT_UTF8)
    status = put_long(state, size)
    return status if status else put(state, at, size)


cdef int avro_enum(State* state, const Node* node, const uint8_t* at, Py_ssize_t size) noexcept nogil:
    cdef int i
    for i in range(node.symbol_count):
        if node.symbols[i].size == size and not memcmp(node.symbols[i].text, at, size):
            return put_long(state, i)
    return unfit(state, node, UNKNOWN_SYMBOL)


cdef int avro_bytes(State* state, const Node* node, const Column* column, Py_ssize_t row) noexcept nogil:
    cdef int64_t start = end_at(column, row)
    cdef Py_ssize_t size = end_at(column, row + 1) - start
    cdef const uint8_t* at = column.data + start
    cdef int status
    if node.output == A_STRING:
        return avro_text(state, node, at, size)
    if node.output == A_ENUM:
        return avro_enum(state, node, at, size)
    if node.output == A_FIXED:
        if size != node.size:
            return unfit(state, node, WRONG_SIZE)
        return put(state, at, size)
    status = put_length(state, node, size)
    return status if status else put(state, at, size)


cdef inline int put_length(State* state, const Node* node, Py_ssize_t size) noexcept nogil:
    """
    Write the length of bytes, unless the plan has the size -1: such bytes are the whole value.
    """
    return OK if node.size < 0 else put_long(state, size)


cdef int avro_decimal(State* state, const Node* node, int128 value) noexcept nogil:
    cdef uint128 magnitude = <uint128>value
    cdef int bytes_count = 1
    cdef int i, status, shift
    if value < 0:
        magnitude = 0 - magnitude
    if magnitude >= POWERS_OF_TEN[node.precision]:
        return unfit(state, node, TOO_MANY_DIGITS)
    # The fewest bytes of a big-endian number in two's complement.
    while bytes_count < 16 and value >> (8 * bytes_count - 1) != value >> 127:
        bytes_count += 1
    if node.output == A_DECIMAL_FIXED:
        if bytes_count > node.size:
            return unfit(state, node, TOO_MANY_DIGITS)
        bytes_count = node.size
        status = OK
    else:
        status = put_length(state, node, bytes_count)
    if status == OK:
        status = reserve(state, bytes_count)
    if status:
        return status
    for i in range(bytes_count - 1, -1, -1):
        shift = min(8 * i, 127)
        state.out[state.used] = <uint8_t>(value >> shift)
        state.used += 1
    return OK


cdef int avro_items(State* state, const Node* node, const Column* column, Py_ssize_t row) noexcept nogil:
    cdef Py_ssize_t start = end_at(column, row)
    cdef Py_ssize_t end = end_at(column, row + 1)
    cdef Py_ssize_t i
    cdef int child
    cdef int status = put_long(state, end - start) if end > start else OK
    for i in range(start, end):
        for child in range(node.child_count):
            if status == OK:
                status = avro_value(state, &node.children[child], i)
        if status:
            return status
    return status if status else put_byte(state, 0)


cdef int avro_members(State* state, const Node* node, Py_ssize_t row) noexcept nogil:
    """
    Write the only member that is not null.
    """
    cdef int i
    cdef const Node* child
    cdef const Node* member = NULL
    for i in range(node.child_count):
        child = &node.children[i]
        if is_null(&state.columns[child.column], row):
            continue
        if member != NULL:
            return unfit(state, child, SECOND_OF_UNION)
        member = child
    if member != NULL:
        return avro_value(state, member, row)
    if node.null_branch < 0:
        return unfit(state, node, IS_NULL)
    return put_long(state, node.null_branch)


cdef int avro_choice(State* state, const Node* node, Py_ssize_t row) noexcept nogil:
    """
    Write a value that is not null as the first branch that can hold it.
    """
    cdef size_t used = state.used
    cdef int status = UNFIT
    cdef int i
    for i in range(node.child_count):
        state.used = used
        status = avro_value(state, &node.children[i], row)
        if status != UNFIT:
            break
    return status


cdef int avro_simple(State* state, const Node* node, const Column* column, Py_ssize_t row) noexcept nogil:
    cdef int output = node.output
    cdef int64_t value
    cdef double wide
    cdef float narrow
    if output == A_BOOLEAN:
        return put_byte(state, bit_at(column, row))
    if output == A_FLOAT:
        narrow = <float>double_at(column, node.kind, row)
        return put(state, &narrow, 4)
    if output == A_DOUBLE:
        wide = double_at(column, node.kind, row)
        return put(state, &wide, 8)
    if output == A_DECIMAL_BYTES or output == A_DECIMAL_FIXED:
        return avro_decimal(state, node, decimal_at(column, row))
    if output >= A_BYTES and output <= A_FIXED:
        return avro_bytes(state, node, column, row)
    value = integer_at(column, node.kind, row)
    if output == A_MILLIS:
        value = value // 1000 - (value % 1000 < 0)
    elif output == A_NANOS:
        if value > INT64_MAX // 1000 or value < -(INT64_MAX // 1000):
            return unfit(state, node, OUT_OF_RANGE)
        value *= 1000
    return put_long(state, value)


cdef int avro_value(State* state, const Node* node, Py_ssize_t row) noexcept nogil:
    """
    Write a value; for a union, the index of its branch comes first.
    """
    cdef const Column* column
    cdef int i
    cdef int status = OK
    if node.output == A_CONSTANT:
        return put(state, node.text.text, node.text.size)
    column = &state.columns[node.column]
    if is_null(column, row):
        if node.null_branch < 0:
            return unfit(state, node, IS_NULL)
        return put_long(state, node.null_branch)
    if node.output == A_MEMBERS:
        return avro_members(state, node, row)
    if node.output == A_CHOICE:
        return avro_choice(state, node, row)
    if node.branch >= 0:
        status = put_long(state, node.branch)
        if status:
            return status
    if node.output == A_ARRAY or node.output == A_MAP:
        return avro_items(state, node, column, row)
    if node.output != A_RECORD:
        return avro_simple(state, node, column, row)
    for i in range(node.child_count):
        status = avro_value(state, &node.children[i], row)
        if status:
            return status
    return OK


# --- Protobuf -------------------------------------------------------------------------------------

include "_protobuf_encoder.pxi"

# --- Python ---------------------------------------------------------------------------------------


@cython.final
cdef class Memory:
    """
    A block of bytes, freed with the last Arrow array that uses it.
    """

    cdef uint8_t* start
    cdef Py_ssize_t size

    def __dealloc__(self):
        free(self.start)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.start, self.size, True, flags)


cdef object owned(uint8_t* start, size_t size):
    cdef Memory memory = Memory()
    cdef uint8_t* shrunk = <uint8_t*>realloc(start, max(size, <size_t>1))
    memory.start = start if shrunk == NULL else shrunk
    memory.size = size
    return memory


class EncodingError(ValueError):
    """
    A value cannot be encoded; ``row`` is its row, ``reason`` the number of the reason, and ``node``
    the number of the plan's node.
    """

    def __init__(self, row: int, reason: int, node: int) -> None:
        super().__init__(row, reason, node)
        self.row = row
        self.reason = reason
        self.node = node


@cython.final
cdef class ValueEncoder:
    """
    Encodes rows with one plan; ``prefix`` precedes each value.

    ``plan`` is (kind, output, column, null branch, branch, size, precision, scale, text, symbols,
    numbers of the symbols, children); a column is an index into the columns of :meth:`encode`. With
    ``keeps_nulls``, JSON objects have the fields that are null. With ``needs_finite``, NaN and
    infinity are errors.
    """

    cdef Node root
    cdef State state
    cdef int nodes
    cdef Symbol prefix

    def __cinit__(self, tuple plan, bytes prefix, *, bint keeps_nulls=False, bint needs_finite=False):
        copy_text(&self.prefix, prefix)
        self.state.keeps_nulls = keeps_nulls
        self.state.needs_finite = needs_finite
        self._build(&self.root, plan)

    def __dealloc__(self):
        free_node(&self.root)
        free(self.prefix.text)
        free(self.state.columns)
        free(self.state.out)

    cdef int _build(self, Node* node, tuple plan) except -1:
        cdef int i
        kind, output, column, null_branch, branch, size, precision, scale, text = plan[:9]
        symbols, numbers, inner = plan[9:]
        node.kind, node.output, node.column = kind, output, column
        node.null_branch, node.branch, node.size = null_branch, branch, size
        node.precision, node.scale = precision, scale
        node.number = self.nodes
        self.nodes += 1
        copy_text(&node.text, text)
        if not 0 <= precision <= 38 or not 0 <= scale <= 38 or column < -1:
            raise ValueError("a plan has an impossible number")
        if P_INT <= output <= P_SFIXED and size not in (32, 64):
            raise ValueError("a plan has a number of an impossible size")
        if output == P_GROUP and len(symbols) != 1:
            raise ValueError("a plan has a group without an end")
        if column >= self.state.column_count:
            self.state.column_count = column + 1
        if symbols:
            node.symbols = <Symbol*>calloc(len(symbols), sizeof(Symbol))
            if node.symbols == NULL:
                raise MemoryError
            for symbol in symbols:
                copy_text(&node.symbols[node.symbol_count], symbol)
                if numbers:
                    node.symbols[node.symbol_count].number = numbers[node.symbol_count]
                node.symbol_count += 1
        if inner:
            node.children = <Node*>calloc(len(inner), sizeof(Node))
            if node.children == NULL:
                raise MemoryError
            node.child_count = len(inner)
            for i in range(node.child_count):
                self._build(&node.children[i], inner[i])
        return 0

    def encode(self, list columns, Py_ssize_t start, Py_ssize_t end, size_t max_bytes):
        """
        Encode rows from ``start`` on, until ``end`` or until the encoded rows have ``max_bytes``.

        ``columns`` has (validity, ends, data, offset, wide) for each column: three addresses, the
        offset of the first row, and whether the ends have 64 bits. Returns the next row, and the
        null count, bitmap, ends and bytes of the encoded rows.

        Raises :class:`EncodingError` for the first row that cannot be encoded.
        """
        cdef Py_ssize_t rows = end - start
        cdef Py_ssize_t row = start
        cdef Py_ssize_t nulls = 0
        cdef uint8_t* bitmap
        cdef int32_t* ends
        cdef int status = OK
        if rows < 0 or start < 0:
            raise ValueError("the rows end before they start")
        self._set_columns(columns)
        bitmap = <uint8_t*>calloc(rows // 8 + 1, 1)
        ends = <int32_t*>malloc((rows + 1) * sizeof(int32_t))
        if bitmap == NULL or ends == NULL:
            free(bitmap)
            free(ends)
            raise MemoryError
        self.state.used = 0
        with nogil:
            status = self._fill(&row, end, max_bytes, bitmap, ends, &nulls)
        if status:
            free(bitmap)
            free(ends)
            if status == NO_MEMORY:
                raise MemoryError
            raise EncodingError(row, self.state.reason, self.state.node)
        rows = row - start
        parts = (
            owned(bitmap, rows // 8 + 1),
            owned(<uint8_t*>ends, (rows + 1) * sizeof(int32_t)),
            owned(self.state.out, self.state.used),
        )
        self.state.out = NULL
        self.state.room = 0
        return row, nulls, *parts

    cdef int _set_columns(self, list columns) except -1:
        cdef int i
        cdef Column* column
        if len(columns) < self.state.column_count:
            raise ValueError("a column of the plan is missing")
        if self.state.columns == NULL:
            self.state.columns = <Column*>calloc(max(self.state.column_count, 1), sizeof(Column))
            if self.state.columns == NULL:
                raise MemoryError
        for i in range(self.state.column_count):
            validity, ends, data, offset, wide = columns[i]
            column = &self.state.columns[i]
            column.validity = <const uint8_t*><uintptr_t>validity
            column.ends = <const uint8_t*><uintptr_t>ends
            column.data = <const uint8_t*><uintptr_t>data
            column.offset = offset
            column.wide = wide
        return 0

    cdef int _fill(
        self,
        Py_ssize_t* row,
        Py_ssize_t end,
        size_t max_bytes,
        uint8_t* bitmap,
        int32_t* ends,
        Py_ssize_t* nulls,
    ) noexcept nogil:
        cdef State* state = &self.state
        cdef Py_ssize_t count = 0
        cdef int status
        ends[0] = 0
        while row[0] < end and (state.used < max_bytes or count == 0):
            if is_null(&state.columns[self.root.column], row[0]):
                nulls[0] += 1
            else:
                bitmap[count >> 3] |= 1 << (count & 7)
                status = put(state, self.prefix.text, self.prefix.size)
                if status:
                    return status
                if self.root.output == JSON:
                    status = json_value(state, &self.root, row[0])
                elif self.root.output == P_MESSAGE:
                    status = pb_fields(state, &self.root, row[0])
                else:
                    status = avro_value(state, &self.root, row[0])
                if status:
                    return status
                if state.used > INT32_MAX:
                    return unfit(state, &self.root, TOO_LARGE)
            count += 1
            ends[count] = <int32_t>state.used
            row[0] += 1
        return OK


cdef int copy_text(Symbol* to, bytes text) except -1:
    to.size = len(text)
    if to.size:
        to.text = <uint8_t*>malloc(to.size)
        if to.text == NULL:
            raise MemoryError
        memcpy(to.text, <const uint8_t*>text, to.size)
    return 0


cdef void free_node(Node* node) noexcept:
    cdef int i
    for i in range(node.child_count):
        free_node(&node.children[i])
    for i in range(node.symbol_count):
        free(node.symbols[i].text)
    free(node.symbols)
    free(node.children)
    free(node.text.text)
