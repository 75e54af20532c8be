# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, embedsignature=True
"""
Decodes Protobuf's binary encoding into Arrow buffers, without a Python object per record.

Only the fields of the column's type are decoded; the rest is skipped, and only its structure is
checked. For any input, nothing outside the given buffers is read.

The fields of a message come in any order, several times and in parts, so a row of a struct stays
unfinished until its message ends; then the fields that the message lacks are filled in.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport (
    INT32_MAX, INT64_MAX, UINT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
)
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memmove, memset

include "_columns.pxi"
include "_decimals.pxi"
include "_binary.pxi"

# Protobuf's types, by the numbers of its descriptors.
cdef enum:
    T_DOUBLE = 1
    T_FLOAT = 2
    T_INT64 = 3
    T_UINT64 = 4
    T_INT32 = 5
    T_FIXED64 = 6
    T_FIXED32 = 7
    T_BOOL = 8
    T_STRING = 9
    T_MESSAGE = 11
    T_BYTES = 12
    T_UINT32 = 13
    T_ENUM = 14
    T_SFIXED32 = 15
    T_SFIXED64 = 16
    T_SINT32 = 17
    T_SINT64 = 18
    # Messages of seconds and nanoseconds that become a number of microseconds.
    T_TIME = 19
    # Messages of one field, which takes the place of the message.
    T_UNWRAPPED = 20
    # A member of a oneof that is not requested: its value removes the requested members.
    T_REMOVING = 21
    TYPES = 22

cdef enum:
    VARINT = 0
    EIGHT_BYTES = 1
    SIZED = 2
    GROUP = 3
    GROUP_END = 4
    FOUR_BYTES = 5

cdef enum:
    # Levels of messages and groups below the value, as in Protobuf's own library.
    MAX_DEPTH = 100
    MAX_TABLE = 1024
    # The maximum length of the path of message indexes at the start of a record.
    MAX_PATH = 8
    # A larger block is freed after each use.
    KEPT_BYTES = 1 << 16

cdef int[TYPES] WIRE_TYPES
WIRE_TYPES[:] = [
    -1, EIGHT_BYTES, FOUR_BYTES, VARINT, VARINT, VARINT, EIGHT_BYTES, FOUR_BYTES, VARINT, SIZED, -1,
    SIZED, SIZED, VARINT, VARINT, FOUR_BYTES, EIGHT_BYTES, VARINT, VARINT, SIZED, SIZED, -1,
]


cdef struct Message:
    Field* fields
    int field_count
    # The fields are sorted by number; the table finds those with small numbers.
    Field** table
    uint32_t table_size
    # An entry of a map, or a wrapper that is decoded as its value.
    bint is_entry


cdef struct Field:
    uint32_t number
    int kind
    bint repeated
    bint is_map
    int oneof
    # The node that gets the values, or NULL to skip them; and the element node of a list.
    Node* target
    Node* element
    bint has_default
    uint8_t* default_value
    Py_ssize_t default_size
    # The names of an enum, sorted by number, and the prefix of a number without a name.
    bint is_closed
    int name_count
    int32_t* numbers
    int32_t* name_ends
    uint8_t* names
    uint8_t* unnamed
    Py_ssize_t unnamed_size
    Message* message
    # The state of the current row: whether its struct has begun, and whether its list is unfit.
    bint is_open
    bint is_spoiled
    # Whether a closed enum had a number without a symbol; used for the entries of maps.
    bint has_unknown
    int64_t seconds
    int64_t nanos
    # For a map that is being completed: the order of its entries by key, and a byte for each entry,
    # true if a later entry has the same key.
    Block order
    Block superseded


# --- The wire format ------------------------------------------------------------------------------

cdef int read_long_varint(Parser* parser, uint64_t* value) noexcept nogil:
    cdef uint64_t bits = 0
    cdef int shift = 0
    cdef const uint8_t* start = parser.at
    cdef uint8_t byte
    while shift < 70:
        if parser.at >= parser.end:
            return ended(parser)
        byte = parser.at[0]
        parser.at += 1
        # Only one bit of the tenth byte counts; the others are dropped, as in Protobuf's libraries.
        bits |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            value[0] = bits
            return OK
        shift += 7
    parser.at = start
    return malformed(parser, BAD_NUMBER)


cdef inline int read_varint(Parser* parser, uint64_t* value) noexcept nogil:
    if parser.at < parser.end and parser.at[0] < 0x80:
        value[0] = parser.at[0]
        parser.at += 1
        return OK
    return read_long_varint(parser, value)


cdef inline int read_tag(Parser* parser, uint32_t* number, int* wire_type) noexcept nogil:
    cdef const uint8_t* start = parser.at
    cdef uint64_t tag
    cdef int status = read_varint(parser, &tag)
    if status:
        return status
    number[0] = <uint32_t>(tag >> 3)
    wire_type[0] = <int>(tag & 7)
    if tag > UINT32_MAX or number[0] == 0 or wire_type[0] > FOUR_BYTES:
        parser.at = start
        return malformed(parser, UNEXPECTED)
    return OK


cdef inline int read_size(Parser* parser, int64_t* size) noexcept nogil:
    """
    Read the size of bytes, all of which the record must contain.
    """
    cdef uint64_t number
    cdef int status = read_varint(parser, &number)
    if status:
        return status
    if number > <uint64_t>left(parser):
        return ended(parser)
    size[0] = <int64_t>number
    return OK


cdef inline int read_fixed(Parser* parser, int size, uint64_t* value) noexcept nogil:
    if size > left(parser):
        return ended(parser)
    value[0] = 0
    # Little-endian, as are all supported machines.
    memcpy(value, parser.at, size)
    parser.at += size
    return OK


cdef int skip(Parser* parser, uint32_t number, int wire_type) noexcept nogil:
    """
    Skip the value of a field.
    """
    cdef uint64_t value
    cdef int64_t size
    cdef int status
    if wire_type == SIZED:
        status = read_size(parser, &size)
        if status == OK:
            parser.at += size
        return status
    if wire_type == VARINT:
        return read_varint(parser, &value)
    if wire_type == EIGHT_BYTES:
        return read_fixed(parser, 8, &value)
    if wire_type == FOUR_BYTES:
        return read_fixed(parser, 4, &value)
    if wire_type == GROUP:
        return skip_group(parser, number)
    return malformed(parser, UNEXPECTED)


cdef int skip_group(Parser* parser, uint32_t number) noexcept nogil:
    cdef uint32_t[MAX_DEPTH] groups
    cdef const uint8_t* start
    cdef int depth = 1
    cdef int wire_type
    cdef int status
    groups[0] = number
    if parser.depth >= MAX_DEPTH:
        return malformed(parser, TOO_DEEP)
    while depth:
        if parser.at >= parser.end:
            return ended(parser)
        start = parser.at
        status = read_tag(parser, &number, &wire_type)
        if status:
            return status
        if wire_type == GROUP_END:
            depth -= 1
            if groups[depth] != number:
                parser.at = start
                return malformed(parser, UNEXPECTED)
        elif wire_type == GROUP:
            if parser.depth + depth >= MAX_DEPTH:
                parser.at = start
                return malformed(parser, TOO_DEEP)
            groups[depth] = number
            depth += 1
        else:
            status = skip(parser, number, wire_type)
            if status:
                return status
    return OK


# --- Messages -------------------------------------------------------------------------------------

cdef inline Field* find_field(Message* message, uint32_t number) noexcept nogil:
    cdef int low, high, middle
    if number < message.table_size:
        return message.table[number]
    low = 0
    high = message.field_count
    while low < high:
        middle = (low + high) // 2
        if message.fields[middle].number < number:
            low = middle + 1
        else:
            high = middle
    if low < message.field_count and message.fields[low].number == number:
        return &message.fields[low]
    return NULL


cdef int decode_message(
    Parser* parser, Message* message, Py_ssize_t row, uint32_t group
) noexcept nogil:
    """
    Decode a message, or a part of it, into an unfinished row. ``group`` is the field number if
    the message is a group, or 0.

    A map's entry or a wrapper is UNFIT if one of its fields is.
    """
    cdef const uint8_t* start
    cdef uint32_t number
    cdef int wire_type
    cdef bint fits = True
    cdef Field* field
    cdef int status
    while group or parser.at < parser.end:
        if parser.at >= parser.end:
            return ended(parser)
        start = parser.at
        status = read_tag(parser, &number, &wire_type)
        if status:
            return status
        if wire_type == GROUP_END:
            if number == group:
                break
            parser.at = start
            return malformed(parser, UNEXPECTED)
        field = find_field(message, number)
        if field == NULL:
            status = skip(parser, number, wire_type)
        else:
            status = decode_field(parser, message, field, wire_type, row)
        if status == UNFIT:
            # An unfit field stays missing.
            fits = False
        elif status:
            if parser.node < 0 and field != NULL and field.target != NULL:
                parser.node = field.target.number
            return status
    return OK if fits or not message.is_entry else UNFIT


cdef int decode_field(
    Parser* parser, Message* message, Field* field, int wire_type, Py_ssize_t row
) noexcept nogil:
    cdef int status
    if field.kind == T_REMOVING:
        status = skip(parser, field.number, wire_type)
        if status == OK:
            remove_others(message, field, row)
        return status
    if field.repeated:
        return decode_repeated(parser, field, wire_type)
    status = decode_single(parser, field, wire_type, field.target, row)
    if field.oneof >= 0 and status <= UNFIT:
        # An unknown symbol of a closed enum counts as a missing value.
        if field.kind != T_ENUM or field.target.rows > row or status == UNFIT:
            remove_others(message, field, row)
    return status


cdef void remove_others(Message* message, Field* field, Py_ssize_t row) noexcept nogil:
    """
    Remove the other members of a oneof from the row: the last one counts.
    """
    cdef Field* other
    cdef int i
    for i in range(message.field_count):
        other = &message.fields[i]
        if other.oneof == field.oneof and other != field and other.target != NULL:
            if other.is_open:
                reset_field(other)
            cut(other.target, row)


cdef int decode_single(
    Parser* parser, Field* field, int wire_type, Node* node, Py_ssize_t row
) noexcept nogil:
    """
    Decode one value into a row: a scalar replaces the row's earlier value, a message continues it.
    """
    cdef const uint8_t* start = parser.at
    cdef bint is_message = field.kind == T_MESSAGE or field.kind >= T_TIME
    cdef int status
    if wire_type != WIRE_TYPES[field.kind] and not (is_message and wire_type == GROUP):
        status = skip(parser, field.number, wire_type)
        if status:
            return status
        if not is_message:
            cut_row(node, row)
        return unfit(parser, node, start, MISMATCH)
    if is_message:
        return decode_part(parser, field, wire_type, node, row)
    return decode_scalar(parser, field, node, row)


cdef inline void cut_row(Node* node, Py_ssize_t row) noexcept nogil:
    """
    Remove an earlier value of the row.
    """
    if node.rows > row:
        cut(node, row)


cdef int decode_part(
    Parser* parser, Field* field, int wire_type, Node* node, Py_ssize_t row
) noexcept nogil:
    """
    Decode a message; an earlier one of the same row is continued.
    """
    cdef const uint8_t* end = parser.end
    cdef const uint8_t* start = parser.at
    cdef uint32_t group = field.number if wire_type == GROUP else 0
    cdef int64_t size
    cdef int status
    if not group:
        status = read_size(parser, &size)
        if status:
            return status
        parser.end = parser.at + size
    parser.depth += 1
    if parser.depth > MAX_DEPTH:
        status = malformed(parser, TOO_DEEP)
    elif field.kind == T_TIME:
        status = decode_time(parser, field, node, row, group, start)
    else:
        status = decode_message(parser, field.message, row, group)
    parser.depth -= 1
    parser.end = end
    if status > UNFIT or field.kind == T_TIME:
        return status
    if field.kind == T_UNWRAPPED:
        if status == UNFIT:
            # No default is added: it would hide that the value does not fit.
            return UNFIT
        return OK if node.rows > row else add_default_value(parser, &field.message.fields[0], node)
    if not field.repeated:
        field.is_open = True
        return OK
    status = finish(parser, field.message, row)
    return status if status else add_valid(parser, node, 1)


cdef int decode_time(
    Parser* parser, Field* field, Node* node, Py_ssize_t row, uint32_t group, const uint8_t* start
) noexcept nogil:
    """
    Decode seconds (field 1) and nanoseconds (field 2) as microseconds.
    """
    cdef uint32_t number
    cdef int wire_type
    cdef uint64_t bits
    cdef int64_t micros
    cdef int status
    if node.rows == row:
        field.seconds = 0
        field.nanos = 0
    while group or parser.at < parser.end:
        if parser.at >= parser.end:
            return ended(parser)
        status = read_tag(parser, &number, &wire_type)
        if status:
            return status
        if wire_type == GROUP_END:
            return malformed(parser, UNEXPECTED) if number != group else OK
        if number <= 2 and wire_type == VARINT:
            status = read_varint(parser, &bits)
            if number == 1:
                field.seconds = <int64_t>bits
            else:
                field.nanos = <int32_t>bits
        else:
            status = skip(parser, number, wire_type)
        if status:
            return status
    cut_row(node, row)
    micros = field.nanos // 1000
    # Rounded down, also before 1970.
    if field.nanos < 0 and field.nanos % 1000:
        micros -= 1
    if not -(INT64_MAX // 1000000) + 3000 <= field.seconds <= INT64_MAX // 1000000 - 3000:
        return unfit(parser, node, start, OUT_OF_RANGE)
    micros += field.seconds * 1000000
    return add_fixed(parser, node, &micros)


cdef int decode_scalar(Parser* parser, Field* field, Node* node, Py_ssize_t row) noexcept nogil:
    cdef const uint8_t* start = parser.at
    cdef int kind = field.kind
    cdef uint64_t bits
    cdef int64_t size
    cdef int status
    if kind == T_STRING or kind == T_BYTES:
        status = read_size(parser, &size)
        if status:
            return status
        cut_row(node, row)
        parser.at += size
        if node.kind == STRING and not is_utf8(parser.at - size, parser.at):
            return unfit(parser, node, start, BAD_UTF8)
        return add_bytes(parser, node, parser.at - size, size)
    if WIRE_TYPES[kind] == VARINT:
        status = read_varint(parser, &bits)
    else:
        status = read_fixed(parser, 8 if WIRE_TYPES[kind] == EIGHT_BYTES else 4, &bits)
    if status:
        return status
    if kind == T_ENUM:
        return add_enum(parser, field, node, row, <int32_t>bits)
    cut_row(node, row)
    if kind == T_DOUBLE or kind == T_FLOAT:
        return add_floating(parser, node, kind, bits)
    if kind == T_BOOL:
        bits = bits != 0
        return add_fixed(parser, node, &bits)
    return add_whole(parser, node, kind, bits, start)


cdef int add_floating(Parser* parser, Node* node, int kind, uint64_t bits) noexcept nogil:
    cdef float narrow
    cdef double wide
    if kind == T_DOUBLE or node.kind == FLOAT:
        return add_fixed(parser, node, &bits)
    memcpy(&narrow, &bits, 4)
    wide = <double>narrow
    return add_fixed(parser, node, &wide)


cdef inline int add_whole(
    Parser* parser, Node* node, int kind, uint64_t bits, const uint8_t* start
) noexcept nogil:
    """
    Append an integer; as in Protobuf's libraries, types of 32 bits keep the lower 32 bits.
    """
    cdef bint is_unsigned = False
    cdef uint128 wide
    cdef int64_t value
    if kind == T_SINT64:
        bits = <uint64_t>from_zigzag(bits)
    elif kind == T_SINT32:
        bits = <uint64_t>from_zigzag(bits & UINT32_MAX)
    elif kind == T_INT32 or kind == T_SFIXED32:
        bits = <uint64_t><int64_t><int32_t>bits
    elif kind == T_UINT32 or kind == T_FIXED32:
        bits = bits & UINT32_MAX
        is_unsigned = True
    elif kind == T_UINT64 or kind == T_FIXED64:
        is_unsigned = True
    if node.kind == DECIMAL:
        wide = bits
        return add_fixed(parser, node, &wide)
    if is_unsigned and bits > <uint64_t>(INT32_MAX if node.kind == INTEGER else INT64_MAX):
        return unfit(parser, node, start, OUT_OF_RANGE)
    value = <int64_t>bits
    # Little-endian, as are all supported machines.
    return add_fixed(parser, node, &value)


cdef int add_enum(
    Parser* parser, Field* field, Node* node, Py_ssize_t row, int32_t number
) noexcept nogil:
    """
    Append the symbol or the number of an enum; in a closed enum, unknown numbers are missing.
    """
    cdef int low = 0
    cdef int high = field.name_count
    cdef int middle
    cdef char[16] digits
    cdef size_t size
    cdef int status
    if 0 <= number < field.name_count and field.numbers[number] == number:
        low = number
    else:
        while low < high:
            middle = (low + high) // 2
            if field.numbers[middle] < number:
                low = middle + 1
            else:
                high = middle
    if low < field.name_count and field.numbers[low] == number:
        cut_row(node, row)
        if node.kind != STRING:
            return add_fixed(parser, node, &number)
        return add_bytes(
            parser,
            node,
            field.names + field.name_ends[low],
            field.name_ends[low + 1] - field.name_ends[low],
        )
    if field.is_closed:
        field.has_unknown = True
        return OK
    cut_row(node, row)
    if node.kind != STRING:
        return add_fixed(parser, node, &number)
    size = snprintf(digits, 16, "%d", number)
    status = reserve(parser, &node.data, field.unnamed_size)
    if status:
        return status
    memcpy(node.data.start + node.data.used, field.unnamed, field.unnamed_size)
    node.data.used += field.unnamed_size
    return add_bytes(parser, node, <uint8_t*>digits, size)


cdef int decode_repeated(Parser* parser, Field* field, int wire_type) noexcept nogil:
    """
    Append elements to an unfinished list or map. An unfit element makes the whole value unfit.
    """
    cdef const uint8_t* end = parser.end
    cdef int64_t size
    cdef int status
    if field.is_spoiled:
        return skip(parser, field.number, wire_type)
    if field.is_map:
        status = decode_entry(parser, field, wire_type)
    elif wire_type == SIZED and WIRE_TYPES[field.kind] != SIZED:
        # Packed: the values without their tags.
        status = read_size(parser, &size)
        if status:
            return status
        parser.end = parser.at + size
        while status == OK and parser.at < parser.end:
            status = decode_scalar(parser, field, field.element, field.element.rows)
        if status == UNFIT:
            parser.at = parser.end
        parser.end = end
    else:
        status = decode_single(parser, field, wire_type, field.element, field.element.rows)
    if status == UNFIT:
        spoil(field)
    return status


cdef void spoil(Field* field) noexcept nogil:
    cdef int i
    for i in range(field.target.child_count):
        cut(&field.target.children[i], end_of(field.target))
    if field.message != NULL:
        reset(field.message)
    field.is_spoiled = True


cdef int decode_entry(Parser* parser, Field* field, int wire_type) noexcept nogil:
    cdef const uint8_t* start = parser.at
    cdef const uint8_t* end = parser.end
    cdef Py_ssize_t row = field.target.children[0].rows
    # The key is field 1, and the value field 2.
    cdef Field* value = &field.message.fields[1]
    cdef int64_t size
    cdef int status
    cdef int i
    if wire_type != SIZED:
        status = skip(parser, field.number, wire_type)
        return status if status else unfit(parser, field.target, start, MISMATCH)
    status = read_size(parser, &size)
    if status:
        return status
    parser.end = parser.at + size
    value.has_unknown = False
    parser.depth += 1
    status = decode_message(parser, field.message, row, 0)
    parser.depth -= 1
    parser.end = end
    if status:
        return status
    if value.has_unknown:
        # Protobuf's libraries keep such an entry in the unknown fields, not in the map.
        for i in range(field.target.child_count):
            cut(&field.target.children[i], row)
        return OK
    return finish(parser, field.message, row)


# --- The end of a message -------------------------------------------------------------------------

cdef int finish(Parser* parser, Message* message, Py_ssize_t row) noexcept nogil:
    """
    Complete a row: end its lists, and set the fields that the message lacks to null or a default.
    """
    cdef Field* field
    cdef Node* node
    cdef int i
    cdef int status
    for i in range(message.field_count):
        field = &message.fields[i]
        node = field.target
        if node == NULL:
            continue
        if field.repeated:
            status = finish_repeated(parser, field)
        elif field.is_open or (field.has_default and field.kind == T_MESSAGE):
            field.is_open = False
            status = finish(parser, field.message, row)
            if status == OK:
                status = add_valid(parser, node, 1)
        elif node.rows > row:
            continue
        elif field.has_default:
            status = add_default_value(parser, field, node)
        else:
            status = add_null(parser, node)
        if status:
            return status
    return OK


cdef int add_default_value(Parser* parser, Field* field, Node* node) noexcept nogil:
    cdef const uint8_t* at = parser.at
    cdef const uint8_t* end = parser.end
    cdef int64_t zero = 0
    cdef int status
    if field.kind == T_TIME:
        return add_fixed(parser, node, &zero)
    if field.kind == T_UNWRAPPED:
        return add_default_value(parser, &field.message.fields[0], node)
    parser.at = field.default_value
    parser.end = field.default_value + field.default_size
    status = decode_scalar(parser, field, node, node.rows)
    parser.at = at
    parser.end = end
    if status == UNFIT:
        # The position is in the record, where the field would be.
        parser.wrong_at = at
        return add_null(parser, node)
    return status


cdef int finish_repeated(Parser* parser, Field* field) noexcept nogil:
    cdef Node* node = field.target
    cdef int status = OK
    if field.is_spoiled:
        field.is_spoiled = False
        return add_null(parser, node)
    if field.is_map:
        status = remove_duplicates(parser, field)
        if field.superseded.room > KEPT_BYTES:
            free_block(parser, &field.superseded)
            free_block(parser, &field.order)
        if status:
            return status
    status = add_end(parser, node, node.children[0].rows)
    return status if status else add_valid(parser, node, 1)


cdef int compare_keys(Node* keys, Py_ssize_t one, Py_ssize_t other) noexcept nogil:
    cdef int32_t* ends
    cdef int32_t size, other_size
    cdef int order
    if keys.width:
        return memcmp(
            keys.data.start + one * keys.width, keys.data.start + other * keys.width, keys.width
        )
    ends = <int32_t*>keys.ends.start
    size = ends[one + 1] - ends[one]
    other_size = ends[other + 1] - ends[other]
    order = memcmp(
        keys.data.start + ends[one], keys.data.start + ends[other], min(size, other_size)
    ) if size and other_size else 0
    return order if order else (size > other_size) - (size < other_size)


cdef int remove_duplicates(Parser* parser, Field* field) noexcept nogil:
    """
    If a map has duplicate keys, keep only the last entry of each key.

    The rows of the others are removed, which takes time in proportion to the map. Decoding the
    entries again instead would double the work at each level of nested maps.
    """
    cdef Node* keys = &field.target.children[0]
    cdef Py_ssize_t first = end_of(field.target)
    cdef Py_ssize_t count = keys.rows - first
    cdef uint8_t* superseded
    cdef bint has_duplicates = False
    cdef Py_ssize_t i, j
    cdef int status
    if count < 2:
        return OK
    field.superseded.used = 0
    status = reserve(parser, &field.superseded, count)
    if status:
        return status
    superseded = field.superseded.start
    memset(superseded, 0, count)
    if count > 16:
        status = sort_keys(parser, field, keys, first, count)
        if status:
            return status
        has_duplicates = mark_duplicates(field, keys, first, count)
    else:
        for i in range(1, count):
            for j in range(i):
                if compare_keys(keys, first + i, first + j) == 0:
                    superseded[j] = True
                    has_duplicates = True
    if has_duplicates:
        for i in range(field.target.child_count):
            remove_rows(&field.target.children[i], first, superseded, count)
    return OK


cdef void remove_rows(
    Node* node, Py_ssize_t first, const uint8_t* removed, Py_ssize_t count
) noexcept nogil:
    """
    Remove some of the last ``count`` rows, which begin at ``first``.
    """
    cdef Py_ssize_t to = first
    cdef Py_ssize_t i = 0
    cdef Py_ssize_t start
    while i < count:
        if removed[i]:
            i += 1
            continue
        start = i
        while i < count and not removed[i]:
            i += 1
        if to < first + start:
            move_rows(node, to, first + start, i - start)
        to += i - start
    cut(node, to)


cdef void move_rows(
    Node* node, Py_ssize_t to, Py_ssize_t start, Py_ssize_t count
) noexcept nogil:
    """
    Move rows towards the start, over rows that are removed or have been moved before.
    """
    cdef int32_t* ends
    cdef int32_t inner, inner_to
    cdef Py_ssize_t i
    if count == 0:
        return
    memmove(node.valid.start + to, node.valid.start + start, count)
    if node.kind == STRUCT:
        for i in range(node.child_count):
            move_rows(&node.children[i], to, start, count)
        return
    if node.width:
        memmove(
            node.data.start + to * node.width,
            node.data.start + start * node.width,
            count * node.width,
        )
        return
    ends = <int32_t*>node.ends.start
    inner = ends[start]
    inner_to = ends[to]
    for i in range(1, count + 1):
        ends[to + i] = ends[start + i] - inner + inner_to
    count = ends[to + count] - inner_to
    if node.kind == LIST or node.kind == MAP:
        for i in range(node.child_count):
            move_rows(&node.children[i], inner_to, inner, count)
    elif count:
        memmove(node.data.start + inner_to, node.data.start + inner, count)


cdef int sort_keys(
    Parser* parser, Field* field, Node* keys, Py_ssize_t first, Py_ssize_t count
) noexcept nogil:
    """
    Sort entries by key, and entries with the same key by position: heapsort, for its worst case.
    """
    cdef int32_t* order
    cdef Py_ssize_t i, end
    cdef int32_t moved
    cdef int status
    field.order.used = 0
    status = reserve(parser, &field.order, 4 * count)
    if status:
        return status
    order = <int32_t*>field.order.start
    for i in range(count):
        order[i] = <int32_t>i
    i = count // 2
    while i:
        i -= 1
        sift_down(keys, first, order, i, count)
    end = count
    while end > 1:
        end -= 1
        moved = order[0]
        order[0] = order[end]
        order[end] = moved
        sift_down(keys, first, order, 0, end)
    return OK


cdef inline bint is_before(
    Node* keys, Py_ssize_t first, int32_t one, int32_t other
) noexcept nogil:
    cdef int order = compare_keys(keys, first + one, first + other)
    return order < 0 or (order == 0 and one < other)


cdef void sift_down(
    Node* keys, Py_ssize_t first, int32_t* order, Py_ssize_t parent, Py_ssize_t end
) noexcept nogil:
    cdef int32_t moved = order[parent]
    cdef Py_ssize_t child = 2 * parent + 1
    while child < end:
        if child + 1 < end and is_before(keys, first, order[child], order[child + 1]):
            child += 1
        if not is_before(keys, first, moved, order[child]):
            break
        order[parent] = order[child]
        parent = child
        child = 2 * parent + 1
    order[parent] = moved


cdef bint mark_duplicates(
    Field* field, Node* keys, Py_ssize_t first, Py_ssize_t count
) noexcept nogil:
    cdef int32_t* order = <int32_t*>field.order.start
    cdef bint has_duplicates = False
    cdef Py_ssize_t i
    for i in range(1, count):
        if compare_keys(keys, first + order[i - 1], first + order[i]) == 0:
            field.superseded.start[order[i - 1]] = True
            has_duplicates = True
    return has_duplicates


cdef void reset_field(Field* field) noexcept nogil:
    field.is_open = False
    field.is_spoiled = False
    if field.message != NULL:
        reset(field.message)


cdef void reset(Message* message) noexcept nogil:
    """
    Forget the current row.
    """
    cdef int i
    for i in range(message.field_count):
        reset_field(&message.fields[i])


cdef void free_orders(Parser* parser, Message* message) noexcept nogil:
    cdef int i
    for i in range(message.field_count):
        free_block(parser, &message.fields[i].order)
        free_block(parser, &message.fields[i].superseded)
        if message.fields[i].message != NULL:
            free_orders(parser, message.fields[i].message)


# --- Plans ----------------------------------------------------------------------------------------

cdef uint8_t* copied(bytes value) except NULL:
    cdef uint8_t* copy = <uint8_t*>malloc(max(len(value), 1))
    if copy == NULL:
        raise MemoryError
    memcpy(copy, <const char*>value, len(value))
    return copy


cdef int build_message(Message* message, object plan, Node* root) except -1:
    """
    Build a message from (is entry, fields), the fields in the order of their numbers.
    """
    cdef int i
    is_entry, fields = plan
    memset(message, 0, sizeof(Message))
    message.is_entry = is_entry
    message.fields = <Field*>calloc(max(len(fields), 1), sizeof(Field))
    if message.fields == NULL:
        raise MemoryError
    for i, field in enumerate(fields):
        # The count is set first, so that a failure frees the fields built so far.
        message.field_count = i + 1
        build_field(&message.fields[i], field, root)
        if i and message.fields[i - 1].number >= message.fields[i].number:
            raise ValueError("the fields are not in the order of their numbers")
    if not fields or message.fields[len(fields) - 1].number >= MAX_TABLE:
        return 0
    message.table_size = message.fields[len(fields) - 1].number + 1
    message.table = <Field**>calloc(message.table_size, sizeof(Field*))
    if message.table == NULL:
        message.table_size = 0
        raise MemoryError
    for i in range(message.field_count):
        message.table[message.fields[i].number] = &message.fields[i]
    return 0


cdef int build_field(Field* field, object plan, Node* root) except -1:
    """
    Build a field from (number, kind, column or -1, repeated, oneof or -1, default, enum, message).
    """
    number, kind, column, repeated, oneof, default, enum, message = plan
    if not 0 < number < 1 << 29 or not 0 < kind < TYPES or kind == 10:
        raise ValueError(f"no such field: {plan[:4]}")
    field.number = number
    field.kind = kind
    field.repeated = repeated
    field.oneof = oneof
    if (column < 0) != (kind == T_REMOVING):
        raise ValueError(f"a field needs a column: {plan[:4]}")
    if column >= 0:
        field.target = find_node(root, column)
        if field.target == NULL:
            raise ValueError(f"there is no column {column}")
    if repeated:
        field.is_map = field.target.kind == MAP
        if not field.is_map and field.target.kind != LIST:
            raise ValueError(f"a repeated field needs a list: {plan[:4]}")
        field.element = &field.target.children[0]
    if default is not None:
        field.has_default = True
        field.default_size = len(default)
        field.default_value = copied(default)
    if enum is not None:
        build_enum(field, enum)
    if (message is None) == (kind == T_MESSAGE or kind == T_UNWRAPPED):
        raise ValueError(f"a message must have fields, and nothing else may: {plan[:4]}")
    if message is not None:
        field.message = <Message*>calloc(1, sizeof(Message))
        if field.message == NULL:
            raise MemoryError
        build_message(field.message, message, root)
        if kind == T_UNWRAPPED and field.message.field_count != 1:
            raise ValueError(f"one field takes the place of a message: {plan[:4]}")
    if field.is_map:
        if field.message == NULL or field.message.field_count != 2:
            raise ValueError(f"a map's entries need a key and a value: {plan[:4]}")
    return 0


cdef int build_enum(Field* field, object plan) except -1:
    """
    Build an enum from (is closed, prefix of numbers without a name, (number, name) pairs).
    """
    cdef int i
    cdef int32_t end = 0
    is_closed, unnamed, symbols = plan
    field.is_closed = is_closed
    encoded = unnamed.encode()
    field.unnamed_size = len(encoded)
    field.unnamed = copied(encoded)
    field.name_count = len(symbols)
    field.numbers = <int32_t*>calloc(max(len(symbols), 1), sizeof(int32_t))
    field.name_ends = <int32_t*>calloc(len(symbols) + 1, sizeof(int32_t))
    if field.numbers == NULL or field.name_ends == NULL:
        raise MemoryError
    names = [name.encode() for _, name in symbols]
    field.names = copied(b"".join(names))
    for i in range(field.name_count):
        field.numbers[i] = symbols[i][0]
        end += <int32_t>len(names[i])
        field.name_ends[i + 1] = end
    return 0


cdef void release_message(Message* message) noexcept:
    cdef Field* field
    cdef int i
    for i in range(message.field_count):
        field = &message.fields[i]
        if field.message != NULL:
            release_message(field.message)
            free(field.message)
        free(field.default_value)
        free(field.numbers)
        free(field.name_ends)
        free(field.names)
        free(field.unnamed)
        free(field.order.start)
        free(field.superseded.start)
    free(message.fields)
    free(message.table)


cdef struct AddedSchema:
    # A schema that was added, with the path of a message in it.
    int64_t key
    int path_size
    int32_t[MAX_PATH] path
    bint is_usable


@cython.final
cdef class ProtobufDecoder(ColumnDecoder):
    """
    Decodes values that are messages of one type.

    ``message`` is the plan of that message, as protobuf_decoder_plan.py makes it for the type of
    ``plan``. With ``id_bytes`` the values name the schema and the message that they were written
    with. In this case :meth:`decode` stops at a value whose schema is ``missing``, until
    :meth:`add_schema` has recorded whether its values can be decoded. ``ref`` has the bytes with
    which Apicurio's serializers name the message; it may take the place of the message indexes.
    """

    cdef Message message
    cdef bytes ref
    cdef AddedSchema* added_schemas
    cdef Py_ssize_t added_count
    cdef Py_ssize_t added_room
    cdef Py_ssize_t last
    cdef int path_size
    cdef int32_t[MAX_PATH] path
    cdef const uint8_t* ref_start
    cdef Py_ssize_t ref_size

    def __init__(
        self, plan, size_t max_bytes, bint stops, message, int id_bytes=0, bytes ref=b""
    ):
        if not 0 <= id_bytes <= 8:
            raise ValueError("ids have at most 8 bytes")
        if self.root.kind != STRUCT:
            raise ValueError("a message becomes a struct")
        self.id_bytes = id_bytes
        self.ref = ref
        self.ref_start = self.ref
        self.ref_size = len(ref)
        build_message(&self.message, message, &self.root)

    def __dealloc__(self):
        release_message(&self.message)
        free(self.added_schemas)

    @property
    def schemas(self):
        """
        The number of schemas that were added and not forgotten.
        """
        return self.added_count

    @property
    def missing_path(self):
        """
        The message indexes in the record whose schema is ``missing``; empty if the record has none,
        because a header or ``ref`` names the message.
        """
        return tuple([self.path[i] for i in range(self.path_size)])

    def forget_schemas(self):
        """
        Remove all schemas.
        """
        self.added_count = 0
        self.last = 0

    def add_schema(self, bint is_usable):
        """
        Add the schema that is ``missing``, and return its number; values of an unusable schema are
        bad.
        """
        cdef AddedSchema* schema
        if self.added_count == self.added_room:
            self.added_schemas = <AddedSchema*>with_more_room(
                self.added_schemas, &self.added_room, sizeof(AddedSchema)
            )
        schema = &self.added_schemas[self.added_count]
        schema.key = self.parser.schema
        schema.path_size = self.path_size
        schema.path = self.path
        schema.is_usable = is_usable
        self.last = self.added_count
        self.added_count += 1
        return self.last

    cdef int read_path(self) noexcept nogil:
        """
        Read the path of message indexes in a record; a single 0 stands for the first message.
        """
        cdef Parser* parser = &self.parser
        cdef const uint8_t* start = parser.at
        cdef uint64_t bits
        cdef int64_t number
        cdef int i
        if read_varint(parser, &bits):
            parser.at = start
            return malformed(parser, NO_ID)
        number = from_zigzag(bits)
        self.path_size = 1
        self.path[0] = 0
        if number == 0:
            return OK
        if not 0 < number <= MAX_PATH:
            parser.at = start
            return malformed(parser, NO_ID)
        self.path_size = <int>number
        for i in range(self.path_size):
            if read_varint(parser, &bits) or not 0 <= from_zigzag(bits) <= INT32_MAX:
                parser.at = start
                return malformed(parser, NO_ID)
            self.path[i] = <int32_t>from_zigzag(bits)
        return OK

    cdef inline bint is_named(self, AddedSchema* schema) noexcept nogil:
        return (
            schema.key == self.parser.schema and schema.path_size == self.path_size
            and memcmp(schema.path, self.path, self.path_size * sizeof(int32_t)) == 0
        )

    cdef int find_schema(self) noexcept nogil:
        cdef Parser* parser = &self.parser
        cdef int status = self.read_key()
        if status:
            return status
        # The keys from headers are negative; the header has the path too.
        self.path_size = 0
        if (
            self.ref_size and parser.end - parser.at >= self.ref_size
            and memcmp(parser.at, self.ref_start, self.ref_size) == 0
        ):
            parser.at += self.ref_size
        elif parser.schema >= 0:
            status = self.read_path()
            if status:
                return status
        if self.last >= self.added_count or not self.is_named(&self.added_schemas[self.last]):
            self.last = 0
            while self.last < self.added_count and not self.is_named(&self.added_schemas[self.last]):
                self.last += 1
            if self.last == self.added_count:
                return NEEDS_SCHEMA
        if self.added_schemas[self.last].is_usable:
            return OK
        parser.schema = self.last
        return malformed(parser, UNUSABLE_SCHEMA)

    cdef int append_record(self) noexcept nogil:
        cdef Parser* parser = &self.parser
        cdef const uint8_t* end = parser.end
        cdef Py_ssize_t row = self.root.rows
        cdef int status = OK
        begin_record(parser)
        parser.depth = 0
        if self.id_bytes:
            status = self.find_schema()
        if status == OK:
            status = decode_message(parser, &self.message, row, 0)
        parser.end = end
        if status <= UNFIT:
            status = finish(parser, &self.message, row)
            if status == OK:
                status = add_valid(parser, &self.root, 1)
        if status == OK:
            return OK
        reset(&self.message)
        if status == FULL:
            free_orders(parser, &self.message)
        if status >= FULL:
            return status
        cut(&self.root, row)
        return add_default(parser, &self.root)
