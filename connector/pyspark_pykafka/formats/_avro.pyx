# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, embedsignature=True
"""
Decodes Avro's binary encoding into Arrow buffers, without a Python object per record.

A record is read with the schema that it was written with. Only the fields of the column's type are
decoded; the rest is skipped. For any input, nothing outside the given buffers is read.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport (
    INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t
)
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memmove, memset

include "_columns.pxi"
include "_decimals.pxi"
include "_binary.pxi"

# Avro's types, as avro_decoder_plan.py numbers them.
cdef enum:
    W_NULL = 0
    W_BOOLEAN = 1
    W_INT = 2
    W_LONG = 3
    W_FLOAT = 4
    W_DOUBLE = 5
    W_BYTES = 6
    W_STRING = 7
    W_RECORD = 8
    W_ENUM = 9
    W_ARRAY = 10
    W_MAP = 11
    W_UNION = 12
    W_FIXED = 13
    # Kinds of resolved schemas: a value that the record lacks, in Avro's encoding; a value that
    # becomes one branch of a union; and a value that does not match the reader's schema.
    W_CONSTANT = 14
    W_BRANCH = 15
    W_UNRESOLVED = 16
    # Bytes without a length, which are the rest of the record.
    W_REST = 17
    W_KINDS = 18

# The conversions, as avro_times.py numbers them.
cdef enum:
    AS_IT_IS = 0
    FROM_MILLIS = 1
    FROM_NANOS = 2
    # Each branch of a union is a field of a struct.
    TO_MEMBERS = 3
    CONVERSIONS = 4


cdef struct WriterSchema:
    # One type in the writer's schema, which is the schema that the values were written with; and
    # the node that gets its values, or NULL to skip them.
    int kind
    int conversion
    int64_t size
    Node* target
    WriterSchema* children
    int child_count
    # The symbols of an enum, and the end of each; or the bytes of a constant.
    uint8_t* symbols
    int32_t* symbol_ends


cdef inline int read_long(Parser* parser, int64_t* value) noexcept nogil:
    """
    Read a zigzag varint of at most 64 bits.
    """
    cdef uint64_t bits = 0
    cdef int shift = 0
    cdef uint8_t byte
    while shift < 70:
        if parser.at >= parser.end:
            return ended(parser)
        byte = parser.at[0]
        if shift == 63 and byte > 1:
            break
        parser.at += 1
        bits |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            value[0] = from_zigzag(bits)
            return OK
        shift += 7
    return malformed(parser, BAD_NUMBER)


cdef inline int read_int(Parser* parser, int64_t* value) noexcept nogil:
    cdef const uint8_t* start = parser.at
    cdef int status = read_long(parser, value)
    if status == OK and not -<int64_t>INT32_MAX - 1 <= value[0] <= INT32_MAX:
        parser.at = start
        return malformed(parser, BAD_NUMBER)
    return status


cdef inline int read_size(Parser* parser, int64_t* size) noexcept nogil:
    """
    Read the size of bytes or text, all of which the record must contain.
    """
    cdef const uint8_t* start = parser.at
    cdef int status = read_long(parser, size)
    if status:
        return status
    if size[0] < 0:
        parser.at = start
        return malformed(parser, BAD_NUMBER)
    return OK if size[0] <= left(parser) else ended(parser)


cdef inline int read_index(Parser* parser, int64_t count, int64_t* index) noexcept nogil:
    """
    Read the number of a branch or symbol.
    """
    cdef const uint8_t* start = parser.at
    cdef int status = read_long(parser, index)
    if status == OK and not 0 <= index[0] < count:
        parser.at = start
        return malformed(parser, UNEXPECTED)
    return status


cdef inline int read_count(Parser* parser, int64_t* count, int64_t* size) noexcept nogil:
    """
    Read the head of a block: its number of items, and its size in bytes or -1.

    A block without items is the last one. More items than remaining bytes are rejected as an
    attack, although items may have no bytes.
    """
    cdef const uint8_t* start = parser.at
    cdef int status = read_long(parser, count)
    size[0] = -1
    if status:
        return status
    if count[0] < 0:
        if count[0] == INT64_MIN:
            parser.at = start
            return malformed(parser, BAD_NUMBER)
        count[0] = -count[0]
        status = read_size(parser, size)
        if status:
            return status
    if count[0] > left(parser):
        parser.at = start
        return malformed(parser, TOO_LARGE)
    return OK


cdef int skip(Parser* parser, WriterSchema* writer) noexcept nogil:
    """
    Skip a value that is not requested.
    """
    cdef int64_t number, size
    cdef int status = OK
    cdef int kind = writer.kind
    cdef int i
    if kind == W_RECORD:
        for i in range(writer.child_count):
            status = skip(parser, &writer.children[i])
            if status:
                return status
        return OK
    if kind == W_STRING or kind == W_BYTES:
        status = read_size(parser, &size)
        if status == OK:
            parser.at += size
        return status
    if kind == W_LONG:
        return read_long(parser, &number)
    if kind == W_INT:
        return read_int(parser, &number)
    if kind == W_UNION:
        status = read_index(parser, writer.child_count, &number)
        return status if status else skip(parser, &writer.children[number])
    if kind == W_ENUM:
        return read_index(parser, writer.size, &number)
    if kind == W_ARRAY or kind == W_MAP:
        return skip_blocks(parser, writer)
    if kind == W_BOOLEAN:
        return read_boolean(parser, &number)
    if kind == W_NULL or kind == W_CONSTANT:
        return OK
    if kind == W_BRANCH or kind == W_UNRESOLVED:
        return skip(parser, &writer.children[0])
    if kind == W_REST:
        parser.at = parser.end
        return OK
    size = 4 if kind == W_FLOAT else 8 if kind == W_DOUBLE else writer.size
    if size > left(parser):
        return ended(parser)
    parser.at += size
    return OK


cdef inline int read_boolean(Parser* parser, int64_t* value) noexcept nogil:
    if parser.at >= parser.end:
        return ended(parser)
    if parser.at[0] > 1:
        return malformed(parser, UNEXPECTED)
    value[0] = parser.at[0]
    parser.at += 1
    return OK


cdef int skip_blocks(Parser* parser, WriterSchema* writer) noexcept nogil:
    cdef int64_t count, size, item
    cdef int status
    cdef int i
    while True:
        status = read_count(parser, &count, &size)
        if status or count == 0:
            return status
        if size >= 0:
            parser.at += size
            continue
        for item in range(count):
            for i in range(writer.child_count):
                status = skip(parser, &writer.children[i])
                if status:
                    return status


cdef int decode(Parser* parser, WriterSchema* writer) noexcept nogil:
    """
    Append a value to its column.

    A value that does not fit the type of its column is skipped, with the status UNFIT. After any
    other error the column may be unfinished.
    """
    cdef int kind = writer.kind
    cdef Node* node = writer.target
    if node == NULL:
        return skip(parser, writer)
    if kind == W_LONG or kind == W_INT:
        return decode_whole(parser, writer)
    if kind == W_STRING:
        return decode_string(parser, node)
    if kind == W_RECORD:
        return decode_record(parser, writer)
    if kind == W_UNION:
        return decode_union(parser, writer)
    if kind == W_FLOAT or kind == W_DOUBLE:
        return decode_floating(parser, writer)
    if kind == W_BYTES or kind == W_FIXED:
        return decode_bytes(parser, writer)
    if kind == W_ARRAY or kind == W_MAP:
        return decode_blocks(parser, writer)
    if kind == W_ENUM:
        return decode_enum(parser, writer)
    if kind == W_BOOLEAN:
        return decode_boolean(parser, node)
    if kind == W_CONSTANT:
        return decode_constant(parser, writer)
    if kind == W_BRANCH:
        return decode_branch(parser, writer)
    if kind == W_UNRESOLVED:
        return skip_unresolved(parser, writer)
    if kind == W_REST:
        return decode_rest(parser, writer)
    return add_null(parser, node)


cdef int decode_constant(Parser* parser, WriterSchema* writer) noexcept nogil:
    """
    Append a value that is not in the record: the default of a field of the reader's schema.
    """
    cdef const uint8_t* at = parser.at
    cdef const uint8_t* end = parser.end
    cdef bint was_fine = parser.reason == 0
    cdef int status
    parser.at = writer.symbols
    parser.end = writer.symbols + writer.size
    status = decode(parser, &writer.children[0])
    parser.at = at
    parser.end = end
    if was_fine and parser.reason:
        # The position is in the record, where the field would be.
        parser.wrong_at = at
    return status


cdef int decode_branch(Parser* parser, WriterSchema* writer) noexcept nogil:
    cdef Py_ssize_t row = writer.target.rows
    cdef int status = decode(parser, &writer.children[0])
    return status if status > UNFIT else fill_missing(parser, writer.target, row)


cdef int skip_unresolved(Parser* parser, WriterSchema* writer) noexcept nogil:
    cdef const uint8_t* start = parser.at
    cdef int status = skip(parser, &writer.children[0])
    return status if status else unfit(parser, writer.target, start, <int>writer.size)


cdef int decode_boolean(Parser* parser, Node* node) noexcept nogil:
    cdef int64_t value
    cdef int status = read_boolean(parser, &value)
    return status if status else add_fixed(parser, node, &value)


cdef inline int decode_whole(Parser* parser, WriterSchema* writer) noexcept nogil:
    cdef Node* node = writer.target
    cdef const uint8_t* start = parser.at
    cdef int64_t value
    cdef float narrow
    cdef double wide
    cdef int status
    status = read_int(parser, &value) if writer.kind == W_INT else read_long(parser, &value)
    if status:
        return status
    if node.kind == DOUBLE:
        wide = <double>value
        return add_fixed(parser, node, &wide)
    if node.kind == FLOAT:
        narrow = <float>value
        return add_fixed(parser, node, &narrow)
    if writer.conversion == FROM_MILLIS:
        if not -(INT64_MAX // 1000) <= value <= INT64_MAX // 1000:
            return unfit(parser, node, start, OUT_OF_RANGE)
        value *= 1000
    elif writer.conversion == FROM_NANOS:
        # Rounded down, also before 1970.
        value = value // 1000 - (value % 1000 < 0)
    # Little-endian, as are all supported machines.
    return add_fixed(parser, node, &value)


cdef int decode_floating(Parser* parser, WriterSchema* writer) noexcept nogil:
    cdef double wide
    cdef float narrow
    cdef int64_t size = 4 if writer.kind == W_FLOAT else 8
    if size > left(parser):
        return ended(parser)
    if writer.kind == W_FLOAT:
        memcpy(&narrow, parser.at, 4)
        wide = <double>narrow
    else:
        memcpy(&wide, parser.at, 8)
        narrow = <float>wide
    parser.at += size
    if writer.target.kind == FLOAT:
        return add_fixed(parser, writer.target, &narrow)
    return add_fixed(parser, writer.target, &wide)


cdef inline int decode_string(Parser* parser, Node* node) noexcept nogil:
    cdef const uint8_t* start = parser.at
    cdef int64_t size
    cdef int status = read_size(parser, &size)
    if status:
        return status
    return take_text(parser, node, start, size)


cdef inline int take_text(
    Parser* parser, Node* node, const uint8_t* start, int64_t size
) noexcept nogil:
    parser.at += size
    if not is_utf8(parser.at - size, parser.at):
        return unfit(parser, node, start, BAD_UTF8)
    return add_bytes(parser, node, parser.at - size, size)


cdef int decode_bytes(Parser* parser, WriterSchema* writer) noexcept nogil:
    cdef const uint8_t* start = parser.at
    cdef int64_t size = writer.size
    cdef int status
    if writer.kind == W_BYTES:
        status = read_size(parser, &size)
        if status:
            return status
    elif size > left(parser):
        return ended(parser)
    return take_bytes(parser, writer, start, size)


cdef int decode_rest(Parser* parser, WriterSchema* writer) noexcept nogil:
    """
    Append the rest of the record as bytes, or as text if the column has strings.
    """
    if writer.target.kind == STRING:
        return take_text(parser, writer.target, parser.at, left(parser))
    return take_bytes(parser, writer, parser.at, left(parser))


cdef inline int take_bytes(
    Parser* parser, WriterSchema* writer, const uint8_t* start, int64_t size
) noexcept nogil:
    cdef uint128 number
    parser.at += size
    if writer.target.kind != DECIMAL:
        return add_bytes(parser, writer.target, parser.at - size, size)
    if not to_decimal(parser.at - size, size, writer.target.precision, &number):
        return unfit(parser, writer.target, start, OUT_OF_RANGE)
    return add_fixed(parser, writer.target, &number)


cdef bint to_decimal(
    const uint8_t* at, int64_t size, int precision, uint128* value
) noexcept nogil:
    """
    Convert a big-endian number in two's complement; return false if it is too large.
    """
    cdef bint negative = size > 0 and at[0] >= 0x80
    cdef uint8_t sign = 0xFF if negative else 0
    cdef uint128 bits = 0
    cdef int64_t i
    if negative:
        bits = ~bits
    for i in range(size):
        if i < size - 16 and at[i] != sign:
            return False
        bits = (bits << 8) | at[i]
    if size > 16 and (at[size - 16] ^ sign) & 0x80:
        return False
    value[0] = bits
    if negative:
        bits = 0 - bits
    return bits < INTEGER_POWERS[precision]


cdef int decode_enum(Parser* parser, WriterSchema* writer) noexcept nogil:
    cdef const uint8_t* start = parser.at
    cdef int64_t index
    cdef int32_t symbol_start
    cdef int status = read_index(parser, writer.size, &index)
    if status:
        return status
    symbol_start = writer.symbol_ends[index]
    if writer.symbol_ends[index + 1] == symbol_start:
        # An empty symbol in the plan stands for a symbol that the reader's schema lacks.
        return unfit(parser, writer.target, start, UNRESOLVED)
    return add_bytes(
        parser,
        writer.target,
        writer.symbols + symbol_start,
        writer.symbol_ends[index + 1] - symbol_start,
    )


cdef int decode_record(Parser* parser, WriterSchema* writer) noexcept nogil:
    cdef Py_ssize_t row = writer.target.rows
    cdef int status
    cdef int i
    for i in range(writer.child_count):
        status = decode(parser, &writer.children[i])
        # A field whose value does not fit its column stays missing.
        if status > UNFIT:
            return status
    return fill_missing(parser, writer.target, row)


cdef int decode_union(Parser* parser, WriterSchema* writer) noexcept nogil:
    cdef Node* node = writer.target
    cdef Py_ssize_t row = node.rows
    cdef int64_t index
    cdef int status = read_index(parser, writer.child_count, &index)
    if status:
        return status
    if writer.children[index].kind == W_NULL:
        return add_null(parser, node)
    status = decode(parser, &writer.children[index])
    if writer.conversion != TO_MEMBERS or status > UNFIT:
        return status
    return fill_missing(parser, node, row)


cdef int decode_blocks(Parser* parser, WriterSchema* writer) noexcept nogil:
    """
    Decode an array or a map; it is UNFIT as a whole if one of its items is.
    """
    cdef Node* node = writer.target
    cdef Py_ssize_t first = node.children[0].rows
    cdef int64_t count, size, item
    cdef bint fits = True
    cdef int status
    cdef int i
    while True:
        status = read_count(parser, &count, &size)
        if status:
            return status
        if count == 0:
            break
        for item in range(count):
            for i in range(writer.child_count):
                status = (
                    decode(parser, &writer.children[i]) if fits
                    else skip(parser, &writer.children[i])
                )
                if status == UNFIT:
                    fits = False
                elif status:
                    return status
    if not fits:
        for i in range(node.child_count):
            cut(&node.children[i], first)
        return UNFIT
    status = add_end(parser, node, node.children[0].rows)
    return status if status else add_valid(parser, node, 1)


cdef int build_writer_schema(WriterSchema* writer, object plan, Node* root) except -1:
    """
    Build a type from (kind, number of the column or -1, conversion, size, children, symbols).
    """
    cdef int i
    cdef int32_t end = 0
    kind, number, conversion, size, children, symbols = plan
    memset(writer, 0, sizeof(WriterSchema))
    if not 0 <= kind < W_KINDS or not 0 <= conversion < CONVERSIONS or size < 0:
        raise ValueError(f"no such type: {plan[:4]}")
    writer.kind = kind
    writer.conversion = conversion
    writer.size = size
    if number >= 0:
        writer.target = find_node(root, number)
        if writer.target == NULL:
            raise ValueError(f"there is no column {number}")
    if kind == W_CONSTANT:
        writer.size = len(symbols)
        writer.symbols = <uint8_t*>malloc(max(len(symbols), 1))
        if writer.symbols == NULL:
            raise MemoryError
        memcpy(writer.symbols, <const char*>symbols, len(symbols))
    elif symbols:
        writer.size = len(symbols)
        encoded = [symbol.encode() for symbol in symbols]
        writer.symbols = <uint8_t*>malloc(max(sum(map(len, encoded)), 1))
        writer.symbol_ends = <int32_t*>calloc(len(symbols) + 1, sizeof(int32_t))
        if writer.symbols == NULL or writer.symbol_ends == NULL:
            raise MemoryError
        for i, symbol in enumerate(encoded):
            memcpy(writer.symbols + end, <const char*>symbol, len(symbol))
            end += <int32_t>len(symbol)
            writer.symbol_ends[i + 1] = end
    writer.children = <WriterSchema*>calloc(max(len(children), 1), sizeof(WriterSchema))
    if writer.children == NULL:
        raise MemoryError
    for i, child in enumerate(children):
        writer.child_count = i + 1
        build_writer_schema(&writer.children[i], child, root)
    if W_CONSTANT <= kind <= W_UNRESOLVED and (number < 0 or len(children) != 1):
        raise ValueError(f"a resolved value needs a column and a type: {plan[:4]}")
    return 0


cdef void release_writer_schema(WriterSchema* writer) noexcept:
    cdef int i
    for i in range(writer.child_count):
        release_writer_schema(&writer.children[i])
    free(writer.children)
    free(writer.symbols)
    free(writer.symbol_ends)


cdef struct AddedSchema:
    # A schema that was added, under its key.
    int64_t key
    # NULL if the schema cannot be used.
    WriterSchema* writer


@cython.final
cdef class AvroDecoder(ColumnDecoder):
    """
    Decodes values that were all written with one schema, or that have the ids of their schemas.

    ``plan`` describes the column. ``writer`` is what avro_decoder_plan.py makes of that one schema
    for this column, or None if values have ids of ``id_bytes`` bytes. In the latter case
    :meth:`decode` stops at a value whose schema is unknown; ``missing`` is then the schema's key,
    with which :meth:`add_schema` adds the schema.
    """

    cdef WriterSchema writer
    cdef AddedSchema* added_schemas
    cdef Py_ssize_t added_count
    cdef Py_ssize_t added_room
    cdef Py_ssize_t last

    def __init__(self, plan, size_t max_bytes, bint stops, writer, int id_bytes=0):
        if (writer is None) != (id_bytes != 0) or not 0 <= id_bytes <= 8:
            raise ValueError("either a schema, or ids of at most 8 bytes")
        self.id_bytes = id_bytes
        if writer is not None:
            build_writer_schema(&self.writer, writer, &self.root)

    def __dealloc__(self):
        release_writer_schema(&self.writer)
        self._forget()
        free(self.added_schemas)

    cdef void _forget(self) noexcept:
        cdef Py_ssize_t i
        for i in range(self.added_count):
            if self.added_schemas[i].writer != NULL:
                release_writer_schema(self.added_schemas[i].writer)
                free(self.added_schemas[i].writer)
        self.added_count = 0
        self.last = 0

    @property
    def schemas(self):
        """
        The number of schemas that were added and not forgotten.
        """
        return self.added_count

    def forget_schemas(self):
        """
        Remove all schemas.
        """
        self._forget()

    def add_schema(self, int64_t key, writer):
        """
        Add a schema under its key; None marks a schema that cannot be used, whose values are bad.
        """
        cdef WriterSchema* built = NULL
        cdef Py_ssize_t index = self._place(key)
        if index < self.added_count and self.added_schemas[index].key == key:
            raise ValueError(f"the schema {key} exists already")
        if self.added_count == self.added_room:
            self.added_schemas = <AddedSchema*>with_more_room(
                self.added_schemas, &self.added_room, sizeof(AddedSchema)
            )
        if writer is not None:
            built = <WriterSchema*>calloc(1, sizeof(WriterSchema))
            if built == NULL:
                raise MemoryError
            try:
                build_writer_schema(built, writer, &self.root)
            except BaseException:
                release_writer_schema(built)
                free(built)
                raise
        memmove(
            &self.added_schemas[index + 1],
            &self.added_schemas[index],
            (self.added_count - index) * sizeof(AddedSchema),
        )
        self.added_schemas[index].key = key
        self.added_schemas[index].writer = built
        self.added_count += 1
        self.last = index

    cdef Py_ssize_t _place(self, int64_t key) noexcept nogil:
        """
        Return the index of a key among the sorted keys of the schemas, or its insertion point.
        """
        cdef Py_ssize_t low = 0
        cdef Py_ssize_t high = self.added_count
        cdef Py_ssize_t middle
        while low < high:
            middle = (low + high) // 2
            if self.added_schemas[middle].key < key:
                low = middle + 1
            else:
                high = middle
        return low

    cdef int find_writer_schema(self, WriterSchema** writer) noexcept nogil:
        cdef int64_t key
        cdef int status = self.read_key()
        if status:
            return status
        key = self.parser.schema
        if self.last >= self.added_count or self.added_schemas[self.last].key != key:
            self.last = self._place(key)
            if self.last >= self.added_count or self.added_schemas[self.last].key != key:
                return NEEDS_SCHEMA
        writer[0] = self.added_schemas[self.last].writer
        return OK if writer[0] != NULL else malformed(&self.parser, UNUSABLE_SCHEMA)

    cdef int append_record(self) noexcept nogil:
        cdef Parser* parser = &self.parser
        cdef Py_ssize_t row = self.root.rows
        cdef WriterSchema* writer = &self.writer
        cdef int status = OK
        begin_record(parser)
        if self.id_bytes:
            status = self.find_writer_schema(&writer)
        if status == OK:
            status = decode(parser, writer)
        if status <= UNFIT and parser.at < parser.end:
            status = malformed(parser, TRAILING)
        if status == OK or status >= FULL:
            return status
        cut(&self.root, row)
        return add_default(parser, &self.root)
