# Columns that grow by one value at a time, for the decoders that include this file.
#
# They own their memory until Arrow gets it, never exceed a limit, and can be cut to fewer rows.

# The kinds of types, as column_types.py numbers them.
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
    KINDS = 16

# The result of decoding a value.
cdef enum:
    OK = 0
    # The value does not fit its type; decoding continues after it.
    UNFIT = 1
    # The record is malformed from here on.
    MALFORMED = 2
    # The columns would exceed their limit.
    FULL = 3
    NO_MEMORY = 4
    # The schema of this record has not been added yet.
    NEEDS_SCHEMA = 5

# The reasons why a record is bad; the subclasses of DecodedColumn have their texts. The reasons
# from MISMATCH to BAD_TEXT concern one field.
cdef enum:
    UNEXPECTED = 1
    ENDED = 2
    CONTROL = 3
    BAD_ESCAPE = 4
    BAD_UTF8 = 5
    BAD_NUMBER = 6
    TOO_DEEP = 7
    TRAILING = 8
    TOO_LARGE = 9
    MISMATCH = 10
    OUT_OF_RANGE = 11
    LONE_SURROGATE = 12
    BAD_TEXT = 13
    # Reasons that concern the schema of a record: the record has no id; the schema cannot be used;
    # a value does not match the reader's schema; a field is missing and has no default.
    NO_ID = 14
    UNUSABLE_SCHEMA = 15
    UNRESOLVED = 16
    NO_DEFAULT = 17

cdef int[KINDS] WIDTHS
WIDTHS[:] = [0, 0, 0, 0, 0, 1, 1, 2, 4, 8, 4, 8, 16, 4, 8, 8]

# --- Columns --------------------------------------------------------------------------------------

cdef struct Block:
    uint8_t* start
    size_t used
    size_t room


cdef struct Node:
    int kind
    int number
    int width
    int precision
    int scale
    Py_ssize_t rows
    # One byte for each row: whether it is not null. Then fixed-width values or bytes, and the ends
    # of variable-size values.
    Block valid
    Block data
    Block ends
    Node* children
    int child_count
    uint8_t* name
    Py_ssize_t name_size
    # A format's lookup table for the fields of a struct.
    void* lookup


cdef struct BadRecord:
    int64_t row
    int64_t position
    int32_t reason
    int32_t node
    # The byte at the position, or -1.
    int32_t byte


cdef struct Parser:
    const uint8_t* at
    const uint8_t* end
    # The end of the buffer, up to which wide loads may read.
    const uint8_t* readable
    int depth
    # The first error of this record.
    int reason
    int node
    const uint8_t* wrong_at
    # The record's row, and the key of its schema.
    Py_ssize_t row
    int64_t schema
    # The size of all blocks, and its limit.
    size_t bytes
    size_t max_bytes
    Block scratch


cdef int grow(Parser* parser, Block* block, size_t more) noexcept nogil:
    cdef size_t room = max(2 * block.room, max(block.used + more, <size_t>64))
    cdef uint8_t* moved
    if parser.bytes + room - block.room > parser.max_bytes:
        # Close to the limit, the room is not doubled.
        room = block.used + more
        if parser.bytes + room - block.room > parser.max_bytes:
            return FULL
    moved = <uint8_t*>realloc(block.start, room)
    if moved == NULL:
        return NO_MEMORY
    parser.bytes += room - block.room
    block.start = moved
    block.room = room
    return OK


cdef inline int reserve(Parser* parser, Block* block, size_t more) noexcept nogil:
    if block.used + more <= block.room:
        return OK
    return grow(parser, block, more)


cdef inline int add_valid(Parser* parser, Node* node, uint8_t valid) noexcept nogil:
    cdef int status = reserve(parser, &node.valid, 1)
    if status:
        return status
    node.valid.start[node.valid.used] = valid
    node.valid.used += 1
    node.rows += 1
    return OK


cdef inline int add_end(Parser* parser, Node* node, int64_t end) noexcept nogil:
    """
    Append the end of a variable-size value; the first value also writes the first offset.
    """
    cdef int status = reserve(parser, &node.ends, 8)
    if status:
        return status
    if node.ends.used == 0:
        (<int32_t*>node.ends.start)[0] = 0
        node.ends.used = 4
    (<int32_t*>(node.ends.start + node.ends.used))[0] = <int32_t>end
    node.ends.used += 4
    return OK


cdef inline int64_t end_of(Node* node) noexcept nogil:
    """
    Return the end of the last variable-size value, which is the start of the next one.
    """
    return (<int32_t*>(node.ends.start + node.ends.used - 4))[0] if node.ends.used else 0


cdef inline int add_fixed(Parser* parser, Node* node, const void* value) noexcept nogil:
    cdef int status = reserve(parser, &node.data, node.width)
    if status:
        return status
    memcpy(node.data.start + node.data.used, value, node.width)
    node.data.used += node.width
    return add_valid(parser, node, 1)


cdef inline int add_bytes(
    Parser* parser, Node* node, const uint8_t* start, size_t size
) noexcept nogil:
    cdef int status = reserve(parser, &node.data, size)
    if status:
        return status
    if size:
        memcpy(node.data.start + node.data.used, start, size)
        node.data.used += size
    status = add_end(parser, node, node.data.used)
    return status if status else add_valid(parser, node, 1)


cdef int add_null(Parser* parser, Node* node) noexcept nogil:
    cdef int status = OK
    cdef int i
    if node.kind == STRUCT:
        for i in range(node.child_count):
            status = add_null(parser, &node.children[i])
            if status:
                return status
    elif node.width:
        status = reserve(parser, &node.data, node.width)
        if status:
            return status
        memset(node.data.start + node.data.used, 0, node.width)
        node.data.used += node.width
    else:
        status = add_end(parser, node, end_of(node))
        if status:
            return status
    return add_valid(parser, node, 0)


cdef int add_default(Parser* parser, Node* root) noexcept nogil:
    """
    Append the value of a bad record: a struct whose fields are all null, or null for other types.
    """
    cdef int status = OK
    cdef int i
    if root.kind != STRUCT:
        return add_null(parser, root)
    for i in range(root.child_count):
        status = add_null(parser, &root.children[i])
        if status:
            return status
    return add_valid(parser, root, 1)


cdef int fill_missing(Parser* parser, Node* node, Py_ssize_t row) noexcept nogil:
    """
    Append nulls for the fields that a struct's row lacks, and end the row.
    """
    cdef int i
    cdef int status
    for i in range(node.child_count):
        if node.children[i].rows == row:
            status = add_null(parser, &node.children[i])
            if status:
                return status
    return add_valid(parser, node, 1)


cdef void cut(Node* node, Py_ssize_t rows) noexcept nogil:
    """
    Remove the values after the first ``rows``, unfinished ones included.
    """
    cdef int i
    cdef Py_ssize_t inner
    node.rows = rows
    node.valid.used = rows
    if node.kind == STRUCT:
        for i in range(node.child_count):
            cut(&node.children[i], rows)
        return
    if node.width:
        node.data.used = rows * node.width
        return
    inner = (<int32_t*>node.ends.start)[rows] if rows else 0
    node.ends.used = 4 * (rows + 1) if rows else 0
    if node.kind == LIST or node.kind == MAP:
        for i in range(node.child_count):
            cut(&node.children[i], inner)
    else:
        node.data.used = inner


cdef inline void begin_record(Parser* parser) noexcept nogil:
    """
    Clear the error of the previous record.
    """
    parser.reason = 0
    parser.wrong_at = NULL
    parser.node = -1


cdef inline int malformed(Parser* parser, int reason) noexcept nogil:
    parser.reason = reason
    parser.node = -1
    parser.wrong_at = parser.at
    return MALFORMED


cdef inline int unfit(Parser* parser, Node* node, const uint8_t* at, int reason) noexcept nogil:
    if parser.reason == 0:
        parser.reason = reason
        parser.node = node.number
        parser.wrong_at = at
    return UNFIT


cdef bint is_utf8(const uint8_t* at, const uint8_t* end) noexcept nogil:
    """
    Return whether the bytes are UTF-8: no surrogates, nothing overlong, nothing above U+10FFFF.
    """
    cdef uint8_t first, second
    cdef uint64_t eight
    cdef uint64_t[4] wide
    # Most text is ASCII, which is passed 32 bytes at a time.
    while end - at >= 32:
        memcpy(wide, at, 32)
        if (wide[0] | wide[1] | wide[2] | wide[3]) & <uint64_t>0x8080808080808080:
            break
        at += 32
    while at < end:
        first = at[0]
        if first < 0x80:
            at += 1
            while end - at >= 8:
                memcpy(&eight, at, 8)
                if eight & <uint64_t>0x8080808080808080:
                    break
                at += 8
            continue
        if end - at < 2 or (at[1] & 0xC0) != 0x80:
            return False
        second = at[1]
        if 0xC2 <= first <= 0xDF:
            at += 2
        elif first & 0xF0 == 0xE0:
            if (
                end - at < 3 or (at[2] & 0xC0) != 0x80 or (first == 0xE0 and second < 0xA0)
                or (first == 0xED and second > 0x9F)
            ):
                return False
            at += 3
        elif 0xF0 <= first <= 0xF4:
            if (
                end - at < 4 or (at[2] & 0xC0) != 0x80 or (at[3] & 0xC0) != 0x80
                or (first == 0xF0 and second < 0x90) or (first == 0xF4 and second > 0x8F)
            ):
                return False
            at += 4
        else:
            return False
    return True


# --- Arrow ----------------------------------------------------------------------------------------

@cython.final
cdef class Memory:
    """
    A block of bytes, freed with the last Arrow array that uses it.
    """

    cdef uint8_t* start
    cdef Py_ssize_t size

    def __dealloc__(self):
        free(self.start)

    def __len__(self):
        return self.size

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.start, self.size, 1, flags)


cdef Memory hand_over(Parser* parser, Block* block):
    """
    Return a block's bytes, and leave it empty.
    """
    cdef Memory memory = Memory.__new__(Memory)
    if block.start == NULL:
        block.start = <uint8_t*>malloc(1)
        if block.start == NULL:
            raise MemoryError
    memory.start = block.start
    memory.size = block.used
    parser.bytes -= block.room
    memset(block, 0, sizeof(Block))
    return memory


cdef Memory bits_of(const uint8_t* flags, Py_ssize_t count):
    """
    Pack flags of one byte each into flags of one bit each.
    """
    cdef Memory memory = Memory.__new__(Memory)
    cdef Py_ssize_t i
    memory.size = (count + 7) >> 3
    memory.start = <uint8_t*>calloc(max(memory.size, 1), 1)
    if memory.start == NULL:
        raise MemoryError
    for i in range(count):
        memory.start[i >> 3] |= <uint8_t>((flags[i] & 1) << (i & 7))
    return memory


# The offsets of a column without rows.
cdef bytes NO_ENDS = bytes(4)


cdef object take_column(Parser* parser, Node* node):
    """
    Return (rows, null count, bitmap or None, ends or None, data or None, children).
    """
    cdef Py_ssize_t rows = node.rows
    cdef Py_ssize_t nulls = 0
    cdef Py_ssize_t i
    cdef object bitmap = None
    cdef object ends = None
    cdef object data = None
    for i in range(rows):
        nulls += not node.valid.start[i]
    if nulls:
        bitmap = bits_of(node.valid.start, rows)
    if node.kind == BOOLEAN:
        data = bits_of(node.data.start, rows)
        node.data.used = 0
    elif node.width or node.kind == STRING or node.kind == BINARY:
        data = hand_over(parser, &node.data)
    if not node.width and node.kind != STRUCT:
        ends = hand_over(parser, &node.ends) if rows else NO_ENDS
    node.rows = 0
    node.valid.used = 0
    children = [take_column(parser, &node.children[child]) for child in range(node.child_count)]
    return rows, nulls, bitmap, ends, data, children


cdef int build(Node* node, object plan, list names) except -1:
    """
    Build a node from (kind, name, precision, scale, children).
    """
    cdef int i
    kind, name, precision, scale, children = plan
    memset(node, 0, sizeof(Node))
    if not 0 <= kind < KINDS or not 0 <= scale <= precision <= 38:
        raise ValueError(f"no such type: {plan[:4]}")
    node.kind = kind
    node.width = WIDTHS[node.kind]
    node.precision = precision
    node.scale = scale
    node.number = len(names)
    names.append(name)
    encoded = name.encode()
    node.name_size = len(encoded)
    node.name = <uint8_t*>malloc(max(node.name_size, 1))
    node.children = <Node*>calloc(max(len(children), 1), sizeof(Node))
    if node.name == NULL or node.children == NULL:
        raise MemoryError
    memcpy(node.name, <const char*>encoded, node.name_size)
    for i, child in enumerate(children):
        # The count is set first, so that a failure frees the children built so far.
        node.child_count = i + 1
        build(&node.children[i], child, names)
    return 0


cdef void release(Node* node) noexcept:
    cdef int i
    for i in range(node.child_count):
        release(&node.children[i])
    free(node.children)
    free(node.name)
    free(node.lookup)
    free(node.valid.start)
    free(node.data.start)
    free(node.ends.start)


cdef void free_block(Parser* parser, Block* block) noexcept nogil:
    parser.bytes -= block.room
    free(block.start)
    memset(block, 0, sizeof(Block))


cdef void free_columns(Parser* parser, Node* node) noexcept nogil:
    cdef int i
    for i in range(node.child_count):
        free_columns(parser, &node.children[i])
    free_block(parser, &node.valid)
    free_block(parser, &node.data)
    free_block(parser, &node.ends)


cdef class ColumnDecoder:
    """
    Decodes the values of records into columns of one type, one Arrow array after another.

    ``plan`` is the type as (kind, name, precision, scale, children). The columns may use
    ``max_bytes``; a record that alone needs more is bad. With ``stops`` the first bad record ends
    :meth:`decode`.

    Records may have the ids of their schemas: ``id_bytes`` bytes after a zero byte, or keys that
    are passed to :meth:`decode`.
    """

    cdef Node root
    cdef Parser parser
    cdef bint stops
    cdef int id_bytes
    cdef bint is_waiting
    # The schema keys that come from headers, and their rows, ascending.
    cdef const int64_t* key_rows
    cdef const int64_t* keys
    cdef Py_ssize_t key_count
    cdef Py_ssize_t next_key
    cdef Py_ssize_t first_row
    cdef BadRecord* bad
    cdef Py_ssize_t bad_count
    cdef Py_ssize_t bad_room

    def __cinit__(self, plan, size_t max_bytes, bint stops, *_):
        memset(&self.root, 0, sizeof(Node))
        memset(&self.parser, 0, sizeof(Parser))
        # The offsets of columns have 32 bits.
        if max_bytes > INT32_MAX:
            raise ValueError(f"max_bytes must be: at most {INT32_MAX}")
        self.parser.max_bytes = max_bytes
        self.stops = stops
        build(&self.root, plan, [])

    def __dealloc__(self):
        release(&self.root)
        free(self.parser.scratch.start)
        free(self.bad)

    cdef int append_record(self) noexcept nogil:
        """
        Append the record at the parser's position, or the value of a bad record.
        """
        return NO_MEMORY

    cdef int read_key(self) noexcept nogil:
        """
        Set the parser's schema to the key from the record's headers, or to the id that precedes the
        value; the id is consumed.
        """
        cdef Parser* parser = &self.parser
        cdef Py_ssize_t row = parser.row - self.first_row
        cdef uint64_t number = 0
        cdef bint has_header = False
        cdef int i
        while self.next_key < self.key_count and self.key_rows[self.next_key] <= row:
            # The last key of a row counts.
            if self.key_rows[self.next_key] == row:
                parser.schema = self.keys[self.next_key]
                has_header = True
            self.next_key += 1
        if has_header:
            return OK
        if parser.end - parser.at <= self.id_bytes or parser.at[0] != 0 or parser.at[1] >= 0x80:
            return malformed(parser, NO_ID)
        for i in range(self.id_bytes):
            number = number << 8 | parser.at[1 + i]
        parser.schema = <int64_t>number
        parser.at += 1 + self.id_bytes
        return OK

    @property
    def missing(self):
        """
        The key of the schema that :meth:`decode` needs to continue, or None.
        """
        return self.parser.schema if self.is_waiting else None

    @property
    def rows(self):
        """
        The number of rows in the columns.
        """
        return self.root.rows

    @property
    def bytes(self):
        """
        The number of bytes that the columns have allocated.
        """
        return self.parser.bytes

    def decode(
        self, validity, offsets, data, Py_ssize_t start, Py_ssize_t end, keys=None,
        Py_ssize_t first_row=0
    ):
        """
        Decode the rows ``[start, end)`` of a binary array's buffers; return the next row.

        The next row is before ``end`` if a bad record ends the decoding, if a schema is
        ``missing``, or if the columns are full; in the last case call :meth:`take` first.

        ``keys`` is a pair of buffers of 64-bit numbers: rows, ascending and counted from
        ``first_row``, and the keys of their schemas.
        """
        cdef Py_buffer key_views[2]
        cdef int key_buffers = 0
        self.is_waiting = False
        self.key_count = 0
        self.first_row = first_row
        if keys is None:
            return self._decode_rows(validity, offsets, data, start, end)
        try:
            for source in keys:
                PyObject_GetBuffer(source, &key_views[key_buffers], PyBUF_SIMPLE)
                key_buffers += 1
            if key_buffers != 2 or key_views[0].len != key_views[1].len or key_views[0].len % 8:
                raise ValueError("the keys are not two buffers of one size")
            self.key_rows = <const int64_t*>key_views[0].buf
            self.keys = <const int64_t*>key_views[1].buf
            self.key_count = key_views[0].len // 8
            self._find_first_key(start - first_row)
            return self._decode_rows(validity, offsets, data, start, end)
        finally:
            self.key_count = 0
            while key_buffers:
                key_buffers -= 1
                PyBuffer_Release(&key_views[key_buffers])

    cdef void _find_first_key(self, int64_t row) noexcept:
        cdef Py_ssize_t low = 0
        cdef Py_ssize_t high = self.key_count
        cdef Py_ssize_t middle
        while low < high:
            middle = (low + high) // 2
            if self.key_rows[middle] < row:
                low = middle + 1
            else:
                high = middle
        self.next_key = low

    def _decode_rows(self, validity, offsets, data, Py_ssize_t start, Py_ssize_t end):
        cdef Py_buffer views[3]
        cdef int count = 0
        cdef int status = OK
        cdef Py_ssize_t row = start
        if start < 0 or end < start:
            raise ValueError(f"no rows: {start} to {end}")
        try:
            for source in (offsets, data, validity):
                if source is not None:
                    PyObject_GetBuffer(source, &views[count], PyBUF_SIMPLE)
                    count += 1
                elif count < 2:
                    raise ValueError("the offsets or the data are missing")
            if (end + 1) * 4 > views[0].len or (count == 3 and (end + 7) >> 3 > views[2].len):
                raise ValueError(f"the buffers do not have {end} rows")
            row = self._decode(
                <const uint8_t*>views[2].buf if count == 3 else NULL,
                <const int32_t*>views[0].buf,
                <const uint8_t*>views[1].buf,
                views[1].len,
                start,
                end,
                &status,
            )
        finally:
            while count:
                count -= 1
                PyBuffer_Release(&views[count])
        if status == NO_MEMORY:
            raise MemoryError(f"no memory for the columns of row {row}")
        if status == MALFORMED:
            raise ValueError(f"the offsets of row {row} are not within the data")
        return row

    cdef Py_ssize_t _decode(
        self, const uint8_t* validity, const int32_t* offsets, const uint8_t* data, int64_t size,
        Py_ssize_t row, Py_ssize_t end, int* status
    ) noexcept nogil:
        cdef Parser* parser = &self.parser
        cdef Py_ssize_t rows
        cdef size_t limit
        parser.readable = data + size
        while row < end:
            rows = self.root.rows
            if not 0 <= offsets[row] <= offsets[row + 1] <= size:
                status[0] = MALFORMED
                return row
            parser.row = row
            parser.at = data + offsets[row]
            parser.end = data + offsets[row + 1]
            if validity != NULL and not validity[row >> 3] & (1 << (row & 7)):
                parser.reason = 0
                status[0] = add_null(parser, &self.root)
            else:
                status[0] = self.append_record()
            if status[0]:
                cut(&self.root, rows)
                if status[0] == NEEDS_SCHEMA:
                    self.is_waiting = True
                    return row
                if status[0] == NO_MEMORY or rows:
                    return row
                # The record does not even fit into empty columns: free their memory, and report the
                # record as bad.
                free_columns(parser, &self.root)
                free_block(parser, &parser.scratch)
                parser.reason = TOO_LARGE
                parser.node = -1
                parser.wrong_at = parser.end
                limit = parser.max_bytes
                parser.max_bytes = <size_t>-1
                status[0] = add_default(parser, &self.root)
                parser.max_bytes = limit
                if status[0]:
                    return row
            if parser.reason:
                status[0] = self._add_bad(row, parser.wrong_at - (data + offsets[row]), data)
                if status[0]:
                    return row
                if self.stops:
                    return row
            row += 1
        return row

    cdef int _add_bad(self, Py_ssize_t row, int64_t position, const uint8_t* data) noexcept nogil:
        cdef Parser* parser = &self.parser
        cdef BadRecord* moved
        cdef BadRecord* bad
        if self.bad_count == self.bad_room:
            moved = <BadRecord*>realloc(
                self.bad, (2 * self.bad_room + 16) * sizeof(BadRecord)
            )
            if moved == NULL:
                return NO_MEMORY
            self.bad = moved
            self.bad_room = 2 * self.bad_room + 16
        bad = &self.bad[self.bad_count]
        bad.row = row
        # An unusable schema is reported with its key instead of a position in the record.
        bad.position = parser.schema if parser.reason == UNUSABLE_SCHEMA else position
        bad.reason = parser.reason
        bad.node = parser.node
        bad.byte = parser.wrong_at[0] if parser.wrong_at < parser.end else -1
        self.bad_count += 1
        return OK

    def keep(self, Py_ssize_t rows):
        """
        Remove all rows after the first ``rows``.
        """
        if not 0 <= rows <= self.root.rows:
            raise ValueError(f"there are no {rows} rows to keep")
        cut(&self.root, rows)

    def take_bad(self):
        """
        Return the bad records since the last call: (row, position, reason, node or -1, byte or -1).

        Rows are rows of the decoded arrays, and positions are in the record's bytes. If the schema
        is unusable, its key takes the place of the position.
        """
        cdef Py_ssize_t i
        cdef BadRecord* bad
        cdef list taken = []
        for i in range(self.bad_count):
            bad = &self.bad[i]
            taken.append((bad.row, bad.position, bad.reason, bad.node, bad.byte))
        self.bad_count = 0
        return taken

    def take(self):
        """
        Return the columns, and start new ones.

        A column is (rows, null count, bitmap or None, ends or None, data or None, children).
        """
        free_block(&self.parser, &self.parser.scratch)
        return take_column(&self.parser, &self.root)
