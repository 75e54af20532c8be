# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, embedsignature=True
"""
Decodes Kafka record batches (magic 2) into Arrow buffers, without a Python object per record.

The format is Kafka's ``DefaultRecordBatch`` and ``DefaultRecord`` (KIP-98). For any input, nothing
outside the given buffer is read.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport (
    INT32_MAX, INT64_MAX, INT64_MIN, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
)
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

# The size of the header, and the positions of its fields in bytes from the start of the batch.
cdef enum:
    HEADER = 61
    LENGTH_AT = 8
    AFTER_LENGTH = 12
    MAGIC_AT = 16
    CRC_AT = 17
    ATTRIBUTES_AT = 21
    LAST_DELTA_AT = 23
    BASE_TIMESTAMP_AT = 27
    MAX_TIMESTAMP_AT = 35
    PRODUCER_ID_AT = 43
    COUNT_AT = 57

cdef enum:
    CODEC_MASK = 0x07
    LOG_APPEND_TIME = 0x08
    TRANSACTIONAL = 0x10
    CONTROL = 0x20

# The second int16 of a control record's key is its type; 0 is an abort marker.
cdef enum:
    ABORT_MARKER = 0

# Spark's timestamps are 64-bit microseconds, Kafka's are 64-bit milliseconds.
cdef int64_t MAX_MILLIS = INT64_MAX // 1000

# Up to this size in bytes, our own checksum is faster than a call of the crc32c library through
# Python.
cdef enum:
    SMALL_BATCH = 512


class MalformedBatch(ValueError):
    """
    A malformed record batch; ``offset`` is the first offset that could not be decoded.
    """

    def __init__(self, offset, reason):
        self.offset = offset
        self.reason = reason
        super().__init__(offset, reason)

    def __str__(self):
        return f"offset {self.offset}: {self.reason}"


class TimestampTooLarge(ValueError):
    """
    A record whose timestamp does not fit into Spark's 64-bit microseconds.
    """

    def __init__(self, offset, millis):
        self.offset = offset
        self.millis = millis
        super().__init__(offset, millis)


class OldFormat(ValueError):
    """
    A message set of a format before record batches (magic 0 or 1), at ``offset``.
    """

    def __init__(self, offset, magic):
        self.offset = offset
        self.magic = magic
        super().__init__(offset, magic)


# --- Numbers ------------------------------------------------------------------------------------

cdef inline int16_t int16_at(const uint8_t* at) noexcept nogil:
    return <int16_t>((<uint32_t>at[0] << 8) | at[1])


cdef inline uint32_t uint32_at(const uint8_t* at) noexcept nogil:
    return (<uint32_t>at[0] << 24) | (<uint32_t>at[1] << 16) | (<uint32_t>at[2] << 8) | at[3]


cdef inline int32_t int32_at(const uint8_t* at) noexcept nogil:
    return <int32_t>uint32_at(at)


cdef inline int64_t int64_at(const uint8_t* at) noexcept nogil:
    return <int64_t>((<uint64_t>uint32_at(at) << 32) | uint32_at(at + 4))


cdef struct Cursor:
    const uint8_t* at
    const uint8_t* end


cdef inline bint read_varlong(Cursor* cursor, int64_t* value) noexcept nogil:
    """
    Read a zigzag varint of at most ten bytes; return false if it does not end inside the cursor.
    """
    cdef uint64_t bits = 0
    cdef int shift = 0
    cdef uint8_t byte
    while cursor.at < cursor.end and shift < 70:
        byte = cursor.at[0]
        cursor.at += 1
        bits |= (<uint64_t>(byte & 0x7F)) << shift
        if byte < 0x80:
            value[0] = <int64_t>(bits >> 1) ^ -<int64_t>(bits & 1)
            return True
        shift += 7
    return False


cdef inline bint read_varint(Cursor* cursor, int64_t* value) noexcept nogil:
    """
    Read a zigzag varint; return false if it exceeds 32 bits or does not end inside the cursor.
    """
    cdef uint8_t byte
    if cursor.at < cursor.end and cursor.at[0] < 0x80:
        byte = cursor.at[0]
        cursor.at += 1
        value[0] = <int64_t>(byte >> 1) ^ -<int64_t>(byte & 1)
        return True
    return read_varlong(cursor, value) and -INT32_MAX - 1 <= value[0] <= INT32_MAX


cdef inline bint read_span(Cursor* cursor, const uint8_t** start, int64_t* size) noexcept nogil:
    """
    Read a length and skip that many bytes; -1 means null, other negative lengths are invalid.
    """
    if not read_varint(cursor, size) or size[0] < -1:
        return False
    start[0] = cursor.at
    if size[0] > 0:
        if size[0] > cursor.end - cursor.at:
            return False
        cursor.at += size[0]
    return True


cdef inline bint skip_byte(Cursor* cursor) noexcept nogil:
    if cursor.at >= cursor.end:
        return False
    cursor.at += 1
    return True


cdef inline bint no_headers(Cursor* cursor) noexcept nogil:
    """
    Return whether only the header count 0 is left of a record, as in most records.
    """
    return cursor.end - cursor.at == 1 and cursor.at[0] == 0


# --- Checksums ------------------------------------------------------------------------------------

# The effect of a byte on a CRC-32C if k (0 to 7) bytes follow it, to process eight bytes per step.
cdef uint32_t CRC_TABLE[8][256]


cdef void fill_crc_table() noexcept:
    cdef uint32_t crc
    cdef int i, k
    for i in range(256):
        crc = i
        for k in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        CRC_TABLE[0][i] = crc
    for k in range(1, 8):
        for i in range(256):
            crc = CRC_TABLE[k - 1][i]
            CRC_TABLE[k][i] = (crc >> 8) ^ CRC_TABLE[0][crc & 0xFF]


fill_crc_table()


cdef uint32_t own_crc32c(const uint8_t* at, int64_t size) noexcept nogil:
    cdef uint32_t crc = 0xFFFFFFFF
    while size >= 8:
        crc ^= at[0] | (<uint32_t>at[1] << 8) | (<uint32_t>at[2] << 16) | (<uint32_t>at[3] << 24)
        crc = (
            CRC_TABLE[7][crc & 0xFF] ^ CRC_TABLE[6][(crc >> 8) & 0xFF]
            ^ CRC_TABLE[5][(crc >> 16) & 0xFF] ^ CRC_TABLE[4][crc >> 24]
            ^ CRC_TABLE[3][at[4]] ^ CRC_TABLE[2][at[5]]
            ^ CRC_TABLE[1][at[6]] ^ CRC_TABLE[0][at[7]]
        )
        at += 8
        size -= 8
    while size > 0:
        crc = (crc >> 8) ^ CRC_TABLE[0][(crc ^ at[0]) & 0xFF]
        at += 1
        size -= 1
    return ~crc


# --- Memory owned by Arrow arrays -----------------------------------------------------------------

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


@cython.final
cdef class Growing:
    """
    A growing block of bytes; doubling keeps the cost of appending constant per byte.
    """

    cdef uint8_t* start
    cdef size_t used
    cdef size_t capacity
    # The size of the previous block.
    cdef size_t expected

    def __dealloc__(self):
        free(self.start)

    cdef inline uint8_t* extend(self, size_t more) except NULL:
        """
        Append ``more`` uninitialised bytes and return their address.
        """
        cdef uint8_t* at
        if self.used + more > self.capacity:
            self.grow(self.used + more)
        at = self.start + self.used
        self.used += more
        return at

    cdef int grow(self, size_t min_size) except -1:
        # The size of the previous block is the best guess; a small margin avoids another copy.
        cdef size_t guess = max(2 * self.capacity, self.expected + self.expected // 16)
        cdef size_t capacity = max(min_size, guess, 256)
        cdef uint8_t* moved = <uint8_t*>realloc(self.start, capacity)
        if moved == NULL:
            raise MemoryError(f"no {capacity} bytes for a column")
        self.start = moved
        self.capacity = capacity
        return 0

    cdef Memory hand_over(self):
        """
        Return the block and start a new one.
        """
        cdef Memory memory = Memory.__new__(Memory)
        if self.start == NULL:
            self.grow(1)
        memory.start = self.start
        memory.size = self.used
        self.expected = self.used
        self.start = NULL
        self.used = 0
        self.capacity = 0
        return memory


@cython.final
cdef class Validity:
    """
    The validity bitmap of a column; without nulls, no memory is allocated.
    """

    cdef Growing bits
    cdef Py_ssize_t nulls

    def __cinit__(self):
        self.bits = Growing()

    cdef int set_null(self, Py_ssize_t row) except -1:
        self.cover(row + 1)
        self.bits.start[row >> 3] &= <uint8_t>~(1 << (row & 7))
        self.nulls += 1
        return 0

    cdef int cover(self, Py_ssize_t rows) except -1:
        cdef size_t size = (rows + 7) >> 3
        cdef size_t more
        if size > self.bits.used:
            more = size - self.bits.used
            memset(self.bits.extend(more), 0xFF, more)
        return 0

    cdef void cut(self, Py_ssize_t rows, Py_ssize_t end) noexcept:
        """
        Clear the nulls of the rows ``[rows, end)``.
        """
        cdef Py_ssize_t row
        for row in range(rows, min(end, <Py_ssize_t>(self.bits.used * 8))):
            if not self.bits.start[row >> 3] & (1 << (row & 7)):
                self.bits.start[row >> 3] |= <uint8_t>(1 << (row & 7))
                self.nulls -= 1

    cdef object take(self, Py_ssize_t rows):
        """
        Return (null count, bitmap or None).
        """
        cdef Py_ssize_t nulls = self.nulls
        if not nulls:
            return 0, None
        self.cover(rows)
        self.nulls = 0
        return nulls, self.bits.hand_over()


@cython.final
cdef class BytesColumn:
    """
    A column of variable-size values: 32-bit offsets, data and validity.
    """

    cdef Growing ends
    cdef Growing data
    cdef Validity validity
    cdef Py_ssize_t rows

    def __cinit__(self):
        self.ends = Growing()
        self.data = Growing()
        self.validity = Validity()

    cdef inline int add(self, const uint8_t* start, int64_t size) except -1:
        if self.rows == 0:
            (<int32_t*>self.ends.extend(4))[0] = 0
        if size > 0:
            memcpy(self.data.extend(size), start, size)
        elif size < 0:
            self.validity.set_null(self.rows)
        (<int32_t*>self.ends.extend(4))[0] = <int32_t>self.data.used
        self.rows += 1
        return 0

    cdef void cut(self, Py_ssize_t rows) noexcept:
        """
        Remove the values after the first ``rows``.
        """
        if rows < self.rows:
            self.validity.cut(rows, self.rows)
            self.data.used = (<int32_t*>self.ends.start)[rows]
            # The first value also writes the first offset.
            self.ends.used = 4 * (rows + 1) if rows else 0
            self.rows = rows

    cdef object take(self):
        """
        Return (rows, null count, bitmap or None, ends, bytes).
        """
        cdef Py_ssize_t rows = self.rows
        if rows == 0:
            (<int32_t*>self.ends.extend(4))[0] = 0
        nulls, bitmap = self.validity.take(rows)
        self.rows = 0
        return rows, nulls, bitmap, self.ends.hand_over(), self.data.hand_over()


@cython.final
cdef class HeadersColumn:
    """
    A column of lists of (key, value); a record without headers is null.

    Most topics have no headers: until the first record with headers, only the rows are counted.
    """

    cdef Growing ends
    cdef Validity validity
    cdef BytesColumn keys
    cdef BytesColumn values
    cdef Py_ssize_t rows

    def __cinit__(self):
        self.ends = Growing()
        self.validity = Validity()
        self.keys = BytesColumn()
        self.values = BytesColumn()

    cdef inline int end_row(self, bint is_null) except -1:
        if not self.ends.used:
            if is_null:
                self.rows += 1
                return 0
            self.write_nulls()
        if is_null:
            self.validity.set_null(self.rows)
        (<int32_t*>self.ends.extend(4))[0] = <int32_t>self.keys.rows
        self.rows += 1
        return 0

    cdef int write_nulls(self) except -1:
        """
        Write the first offset, and the offsets and nulls of the rows counted so far.
        """
        cdef size_t size = 4 * (self.rows + 1)
        cdef Py_ssize_t row
        memset(self.ends.extend(size), 0, size)
        for row in range(self.rows):
            self.validity.set_null(row)
        return 0

    cdef void undo(self) noexcept:
        """
        Remove the headers of the unfinished record.
        """
        cdef Py_ssize_t pairs = 0
        if self.ends.used:
            pairs = (<int32_t*>self.ends.start)[self.rows]
        self.keys.cut(pairs)
        self.values.cut(pairs)

    cdef object take(self):
        """
        Return (rows, null count, bitmap or None, ends, keys, values), or None if all rows are null.
        """
        cdef Py_ssize_t rows = self.rows
        self.rows = 0
        if not self.ends.used:
            return None
        nulls, bitmap = self.validity.take(rows)
        return rows, nulls, bitmap, self.ends.hand_over(), self.keys.take(), self.values.take()


# --- Batches --------------------------------------------------------------------------------------

def next_offset(const uint8_t[::1] records, int64_t position):
    """
    Return the offset after the last complete batch, or ``position`` if that is larger.

    Only headers are read, so that the next fetch can be sent before this response is decoded.
    """
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t size = records.shape[0]
    cdef int64_t length, base
    cdef int32_t delta
    while size - at >= HEADER:
        length = int32_at(&records[at + LENGTH_AT])
        if length < HEADER - AFTER_LENGTH or length > size - at - AFTER_LENGTH:
            break
        base = int64_at(&records[at])
        delta = int32_at(&records[at + LAST_DELTA_AT])
        if records[at + MAGIC_AT] != 2 or not offsets_fit(base, delta):
            break
        position = max(position, base + delta + 1)
        at += AFTER_LENGTH + length
    return position


cdef inline bint offsets_fit(int64_t base, int32_t last_delta) noexcept nogil:
    """
    Return whether a batch's offsets, and the offset after the last, fit into 64 bits.
    """
    return base >= 0 and last_delta >= 0 and base <= INT64_MAX - last_delta - 1


@cython.final
cdef class RecordDecoder:
    """
    Decodes the records with offsets in [start, end) into columns, one fetch response after another.

    Call :meth:`feed` with a response's records, then :meth:`fill` until it returns false. Each time
    it returns true, the columns are full and :meth:`take` must be called. ``position`` is the next
    offset to read.

    ``columns`` selects from key, value, offset, timestamp, timestampType and headers; timestamp is
    in microseconds, and timestampMs selects it in milliseconds instead. ``crc32c`` computes
    checksums; with None they are not verified. ``decompress(codec, bytes)`` returns the records of
    a batch. The columns are full at ``max_rows`` rows or ``max_bytes`` bytes of records; only a
    single larger record exceeds that.
    """

    cdef readonly int64_t position
    cdef readonly int64_t end
    cdef readonly Py_ssize_t rows
    cdef Py_ssize_t max_rows
    cdef int64_t max_bytes
    cdef int64_t bytes
    cdef object crc32c
    cdef object decompress
    cdef BytesColumn keys
    cdef BytesColumn values
    cdef Growing offsets
    cdef Growing timestamps
    # The smallest and the largest timestamp in milliseconds that fit into the column, and the
    # number of its units in a millisecond.
    cdef int64_t min_millis
    cdef int64_t max_millis
    cdef int64_t millisecond
    cdef Growing timestamp_types
    cdef HeadersColumn headers
    # The current response, kept alive by its buffer, and the position of its next batch.
    cdef Py_buffer response
    cdef bint has_response
    cdef object source
    cdef Py_ssize_t batch_at
    cdef bint is_first_batch
    # The aborted transactions that start after the current batch (the next one is the last item),
    # and the producer ids of those that have started and not ended.
    cdef list aborted
    cdef set aborting
    # The current batch: its records, the number of records left, and fields of its header.
    cdef Py_buffer decompressed
    cdef bint has_decompressed
    cdef Cursor cursor
    cdef int64_t left
    cdef int64_t base_offset
    cdef int64_t last_offset
    # The last offset of the last completely decoded batch, in this response or a previous one.
    cdef int64_t passed
    cdef int64_t previous_offset
    cdef int64_t base_timestamp
    cdef int64_t max_timestamp
    cdef bint log_append_time

    def __cinit__(
        self, columns, int64_t start, int64_t end, crc32c, decompress,
        Py_ssize_t max_rows, int64_t max_bytes
    ):
        if max_rows < 1 or not 1 <= max_bytes <= 1 << 30:
            raise ValueError(f"max_rows {max_rows} and max_bytes {max_bytes} cannot bound a batch")
        self.position = start
        self.end = end
        self.passed = -1
        self.crc32c = crc32c
        self.decompress = decompress
        self.max_rows = max_rows
        self.max_bytes = max_bytes
        self.keys = BytesColumn() if "key" in columns else None
        self.values = BytesColumn() if "value" in columns else None
        self.offsets = Growing() if "offset" in columns else None
        cdef bint in_millis = "timestampMs" in columns
        self.timestamps = Growing() if in_millis or "timestamp" in columns else None
        self.millisecond = 1 if in_millis else 1000
        self.min_millis = INT64_MIN if in_millis else -MAX_MILLIS
        self.max_millis = INT64_MAX if in_millis else MAX_MILLIS
        self.timestamp_types = Growing() if "timestampType" in columns else None
        self.headers = HeadersColumn() if "headers" in columns else None
        self.aborted = []
        self.aborting = set()

    def __dealloc__(self):
        self._end_batch()
        self._end_response()

    cdef void _end_batch(self) noexcept:
        if self.has_decompressed:
            PyBuffer_Release(&self.decompressed)
            self.has_decompressed = False
        self.left = 0

    cdef void _end_response(self) noexcept:
        if self.has_response:
            PyBuffer_Release(&self.response)
            self.has_response = False

    @property
    def done(self):
        """
        Whether the position has reached the end of the range.
        """
        return self.position >= self.end

    def feed(self, records, aborted=()):
        """
        Start decoding the records of a response, which must not change until they are decoded.

        They must be the response for ``position``: the first batch contains that offset, or starts
        after it if the log does not have it any more.

        ``aborted`` has (first offset, producer id) of the response's aborted transactions; it is
        empty unless only committed records are read.
        """
        self._end_batch()
        self._end_response()
        PyObject_GetBuffer(records, &self.response, PyBUF_SIMPLE)
        self.has_response = True
        self.source = memoryview(records)
        self.batch_at = 0
        self.is_first_batch = True
        self.last_offset = self.passed
        self.aborted = sorted(aborted, reverse=True)
        self.aborting = set()

    def skip_to(self, int64_t position):
        """
        Continue at a later offset: the offsets before it have no records.
        """
        if position > self.position:
            self.position = min(position, self.end)

    def allow_log_change(self):
        """
        Continue in a log that was truncated: its batches need not follow those decoded so far.
        """
        self.passed = -1

    def fill(self):
        """
        Decode records until the columns are full (true) or the response is decoded (false).

        Raises :class:`MalformedBatch`, :class:`TimestampTooLarge` or :class:`OldFormat`, and the
        same error again on the next call. The columns have the records before the malformed one.
        """
        while self.left > 0 or self._next_batch():
            if self._decode_records():
                return True
        # Released now, since the memory may be needed before the next response arrives.
        self._end_response()
        self.source = None
        return False

    def take(self):
        """
        Return the columns and start new ones.

        Returns (rows, key, value, offset, timestamp, timestampType, headers): None for columns that
        are not selected, else memory of fixed width or the tuple of a variable-size column. For
        headers, None also means that no record has any.
        """
        rows = self.rows
        self.rows = 0
        self.bytes = 0
        return (
            rows,
            None if self.keys is None else self.keys.take(),
            None if self.values is None else self.values.take(),
            None if self.offsets is None else self.offsets.hand_over(),
            None if self.timestamps is None else self.timestamps.hand_over(),
            None if self.timestamp_types is None else self.timestamp_types.hand_over(),
            None if self.headers is None else self.headers.take(),
        )

    cdef bint _next_batch(self) except -1:
        """
        Open the next batch with visible records; return false if no complete batch is left.
        """
        cdef const uint8_t* batch
        cdef int64_t left, size, base
        cdef int32_t delta
        cdef bint opened
        while self.has_response and self.position < self.end:
            batch = <const uint8_t*>self.response.buf + self.batch_at
            left = self.response.len - self.batch_at
            # Messages of the oldest formats may be smaller than a header, but have the magic byte.
            if left > MAGIC_AT and batch[MAGIC_AT] != 2:
                raise self._other_format(batch[MAGIC_AT])
            if left < HEADER:
                return False
            size = AFTER_LENGTH + <int64_t>int32_at(batch + LENGTH_AT)
            if size < HEADER:
                raise MalformedBatch(self.position, f"a record batch says it has {size} bytes")
            if size > left:
                return False
            base = int64_at(batch)
            delta = int32_at(batch + LAST_DELTA_AT)
            if base <= self.last_offset or not offsets_fit(base, delta):
                raise MalformedBatch(
                    self.position,
                    f"a record batch says it holds offsets {base} to +{delta}, after one that "
                    f"ends at {self.last_offset}",
                )
            if self.is_first_batch and base + delta < self.position:
                raise MalformedBatch(
                    self.position,
                    f"the first record batch of the response ends at offset {base + delta}",
                )
            if base >= self.end:
                self.position = self.end
                return False
            opened = self._open_batch(batch, size, base, base + delta)
            # Advanced late: a malformed batch must raise again on the next call.
            self.batch_at += size
            self.is_first_batch = False
            self.last_offset = base + delta
            if opened:
                return True
            self._pass_batch()
        return False

    cdef void _pass_batch(self) noexcept:
        self.passed = self.last_offset
        self.position = max(self.position, min(self.last_offset + 1, self.end))

    cdef object _other_format(self, uint8_t magic):
        if magic < 2:
            return OldFormat(self.position, magic)
        return MalformedBatch(self.position, f"a record batch has the unknown format {magic}")

    cdef bint _open_batch(
        self, const uint8_t* batch, int64_t size, int64_t base, int64_t last
    ) except -1:
        """
        Check a batch and open its records; return false if none of them is visible.
        """
        cdef int16_t attributes = int16_at(batch + ATTRIBUTES_AT)
        cdef int32_t count = int32_at(batch + COUNT_AT)
        cdef int64_t first = max(base, self.position)
        if self.crc32c is not None:
            self._check_crc(batch, size, first)
        if count < 0 or (count == 0 and size > HEADER and not attributes & CODEC_MASK):
            raise MalformedBatch(
                first, f"a record batch of {size} bytes says it has {count} records"
            )
        if count > last - base + 1:
            raise MalformedBatch(
                first, f"a record batch says it has {count} records at offsets {base} to {last}"
            )
        if self._hidden(batch, size, first, last) or count == 0:
            return False
        self.base_offset = base
        self.previous_offset = base - 1
        self.base_timestamp = int64_at(batch + BASE_TIMESTAMP_AT)
        self.max_timestamp = int64_at(batch + MAX_TIMESTAMP_AT)
        self.log_append_time = (attributes & LOG_APPEND_TIME) != 0
        self._open_records(batch, size, first)
        self.left = count
        return True

    cdef int _check_crc(self, const uint8_t* batch, int64_t size, int64_t first) except -1:
        cdef Py_ssize_t start = batch - <const uint8_t*>self.response.buf
        cdef uint32_t stored = uint32_at(batch + CRC_AT)
        cdef uint32_t computed
        if size <= SMALL_BATCH:
            computed = own_crc32c(batch + ATTRIBUTES_AT, size - ATTRIBUTES_AT)
        else:
            computed = self.crc32c(self.source[start + ATTRIBUTES_AT:start + size])
        if computed != stored:
            raise MalformedBatch(
                first,
                f"a record batch has the checksum {computed:#010x}, but its header says "
                f"{stored:#010x}",
            )
        return 0

    cdef bint _hidden(
        self, const uint8_t* batch, int64_t size, int64_t first, int64_t last
    ) except -1:
        """
        Return whether a batch is a control batch, or belongs to an aborted transaction.

        Aborted transactions are known only with ``read_committed``.
        """
        cdef int16_t attributes = int16_at(batch + ATTRIBUTES_AT)
        cdef int64_t producer
        if not self.aborted and not self.aborting:
            return (attributes & CONTROL) != 0
        producer = int64_at(batch + PRODUCER_ID_AT)
        while self.aborted and self.aborted[len(self.aborted) - 1][0] <= last:
            self.aborting.add(self.aborted.pop()[1])
        if attributes & CONTROL:
            if self._is_abort(batch, size, first):
                self.aborting.discard(producer)
            return True
        return (attributes & TRANSACTIONAL) != 0 and producer in self.aborting

    cdef bint _is_abort(self, const uint8_t* batch, int64_t size, int64_t first) except -1:
        """
        Return whether a control batch is an abort marker; compaction may have removed its record.
        """
        cdef Cursor cursor
        cdef int64_t number
        cdef const uint8_t* key
        if int32_at(batch + COUNT_AT) == 0:
            return False
        self._open_records(batch, size, first)
        cursor = self.cursor
        # Length, attributes, timestamp, offset, key.
        if (
            not read_varint(&cursor, &number)
            or not skip_byte(&cursor)
            or not read_varlong(&cursor, &number)
            or not read_varint(&cursor, &number)
            or not read_span(&cursor, &key, &number)
            or number < 4
        ):
            raise MalformedBatch(first, "a control record has no readable type")
        number = int16_at(key + 2)
        self._end_batch()
        return number == ABORT_MARKER

    cdef int _open_records(self, const uint8_t* batch, int64_t size, int64_t first) except -1:
        """
        Set the cursor to the records of a batch, decompressed if necessary.
        """
        cdef int codec = int16_at(batch + ATTRIBUTES_AT) & CODEC_MASK
        cdef Py_ssize_t start = batch - <const uint8_t*>self.response.buf
        self._end_batch()
        if not codec:
            self.cursor.at = batch + HEADER
            self.cursor.end = batch + size
            return 0
        try:
            plain = self.decompress(codec, self.source[start + HEADER:start + size])
        except ValueError as cause:
            raise MalformedBatch(first, str(cause)) from cause
        PyObject_GetBuffer(plain, &self.decompressed, PyBUF_SIMPLE)
        self.has_decompressed = True
        self.cursor.at = <const uint8_t*>self.decompressed.buf
        self.cursor.end = self.cursor.at + self.decompressed.len
        return 0

    cdef bint _decode_records(self) except -1:
        """
        Decode the records of the open batch; return true if the columns are full before its end.

        A record is appended only after all of it has been checked, so that the columns always have
        equal lengths.
        """
        cdef Cursor record
        cdef const uint8_t* key
        cdef const uint8_t* value
        cdef int64_t length, delta, offset, millis, key_size, value_size
        while self.left > 0:
            record = self.cursor
            if not read_varint(&record, &length) or not 0 < length <= record.end - record.at:
                raise self._malformed("has a wrong length")
            record.end = record.at + length
            if self.left == 1 and record.end != self.cursor.end:
                raise self._malformed("is the last one of a batch that goes on")
            record.at += 1
            if not read_varlong(&record, &millis) or not read_varint(&record, &delta):
                raise self._malformed("ends inside its numbers")
            # Checked before the addition, since the sum of malicious numbers could overflow.
            if not 0 <= delta <= self.last_offset - self.base_offset:
                raise self._malformed(f"says it is {delta} offsets from its batch's first")
            offset = self.base_offset + delta
            if offset <= self.previous_offset:
                raise self._malformed(f"says it has offset {offset}, which is not the next")
            if offset >= self.end:
                self.position = self.end
                self._end_batch()
                return False
            if offset >= self.position:
                if self.rows and (
                    self.rows >= self.max_rows or length > self.max_bytes - self.bytes
                ):
                    return True
                if (
                    not read_span(&record, &key, &key_size)
                    or not read_span(&record, &value, &value_size)
                ):
                    raise self._malformed("has a key or value that does not end in it")
                if self.log_append_time:
                    millis = self.max_timestamp
                else:
                    # Added as unsigned numbers, which may overflow: the result is the same as in
                    # Java.
                    millis = <int64_t>(<uint64_t>self.base_timestamp + <uint64_t>millis)
                if self.timestamps is not None and not (
                    self.min_millis <= millis <= self.max_millis
                ):
                    raise TimestampTooLarge(offset, millis)
                if not no_headers(&record):
                    self._add_headers(&record)
                elif self.headers is not None:
                    self.headers.end_row(True)
                # The record is valid from here on.
                if self.timestamps is not None:
                    (<int64_t*>self.timestamps.extend(8))[0] = millis * self.millisecond
                if self.keys is not None:
                    self.keys.add(key, key_size)
                if self.values is not None:
                    self.values.add(value, value_size)
                if self.offsets is not None:
                    (<int64_t*>self.offsets.extend(8))[0] = offset
                if self.timestamp_types is not None:
                    (<int32_t*>self.timestamp_types.extend(4))[0] = self.log_append_time
                self.rows += 1
                self.bytes += length
                self.position = offset + 1
            self.cursor.at = record.end
            self.previous_offset = offset
            self.left -= 1
        self._end_batch()
        self._pass_batch()
        return False

    cdef object _malformed(self, reason):
        cdef int64_t after = self.previous_offset + 1
        return MalformedBatch(max(after, self.position), f"a record {reason}")

    cdef int _add_headers(self, Cursor* record) except -1:
        """
        Check the headers at the end of a record, and append them if the column is selected.
        """
        reason = self._add_pairs(record)
        if reason is not None:
            if self.headers is not None:
                self.headers.undo()
            raise self._malformed(reason)
        return 0

    cdef object _add_pairs(self, Cursor* record):
        """
        Append headers up to the first malformed one, and return its problem or None.
        """
        cdef int64_t count, key_size, value_size
        cdef const uint8_t* key
        cdef const uint8_t* value
        cdef int64_t i
        if not read_varint(record, &count) or not 0 <= count <= record.end - record.at:
            return "has a wrong number of headers"
        for i in range(count):
            if not read_span(record, &key, &key_size) or key_size < 0:
                return "has a header key that does not end in it"
            if not read_span(record, &value, &value_size):
                return "has a header value that does not end in it"
            if self.headers is not None:
                self.headers.keys.add(key, key_size)
                self.headers.values.add(value, value_size)
        if record.at != record.end:
            return "goes on after its last header"
        if self.headers is not None:
            self.headers.end_row(count == 0)
        return None
