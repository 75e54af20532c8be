# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: initializedcheck=False, embedsignature=True
"""
Encodes Arrow columns into Kafka record batches (magic 2), without a Python object per record.

The format is Kafka's ``DefaultRecordBatch`` and ``DefaultRecord`` (KIP-98). Keys go to the same
partitions as with the Java client's default partitioner.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

# The size of a batch's header, reserved before its records.
cdef enum:
    HEADER = 61

# The maximum size of a record without key, value and headers: its lengths, attributes, deltas and
# the number of headers.
cdef enum:
    MAX_OVERHEAD = 5 + 1 + 10 + 5 + 5 + 5 + 5

# The minimum size of the memory of an open batch.
cdef enum:
    MIN_CAPACITY = 4096

# The first valid timestamp: Spark's are microseconds, Kafka's milliseconds. Brokers reject negative
# timestamps, and some clients treat 0 as "now".
cdef enum:
    FIRST_MICROS = 1000

# The reasons why a row cannot become a record.
cdef enum:
    REASON_TOO_LARGE = 1
    REASON_NO_PARTITION = 2
    REASON_TOO_EARLY = 3
    REASON_NO_HEADER_KEY = 4


class RowError(ValueError):
    """
    A row that cannot become a record; ``reason`` is one of the constants below.

    ``detail`` is the size of the record, the number of partitions of the topic, the timestamp in
    microseconds, or the index of the header.
    """

    TOO_LARGE = REASON_TOO_LARGE
    NO_PARTITION = REASON_NO_PARTITION
    TOO_EARLY = REASON_TOO_EARLY
    NO_HEADER_KEY = REASON_NO_HEADER_KEY

    def __init__(self, row, reason, detail):
        self.row = row
        self.reason = reason
        self.detail = detail
        super().__init__(row, reason, detail)


# --- Columns --------------------------------------------------------------------------------------

cdef struct Column:
    # An Arrow array: without validity there are no nulls; ends have 32 bits, or 64 if wide. A
    # column that is not present has only nulls.
    const uint8_t* validity
    const uint8_t* ends
    const uint8_t* data
    int64_t offset
    bint wide
    bint present


cdef Column column_of(object addresses) except *:
    """
    Return a column from a tuple (validity, ends, data, offset, wide), or from None.

    The first three are addresses.
    """
    cdef Column column
    cdef uintptr_t validity, ends, data
    memset(&column, 0, sizeof(Column))
    column.present = addresses is not None
    if addresses is None:
        return column
    validity, ends, data, column.offset, column.wide = addresses
    column.validity = <const uint8_t*>validity
    column.ends = <const uint8_t*>ends
    column.data = <const uint8_t*>data
    return column


cdef inline bint is_null(const Column* column, int64_t row) noexcept nogil:
    if not column.present:
        return True
    if column.validity == NULL:
        return False
    row += column.offset
    return not (column.validity[row >> 3] >> (row & 7)) & 1


cdef inline int64_t end_of(const Column* column, int64_t row) noexcept nogil:
    """
    Return the end of the element before ``row``, which is the start of ``row``.
    """
    row += column.offset
    return (<const int64_t*>column.ends)[row] if column.wide else (<const int32_t*>column.ends)[row]


cdef struct Span:
    const uint8_t* at
    # -1 means null, as in a record.
    int64_t size


cdef inline Span span_of(const Column* column, int64_t row) noexcept nogil:
    cdef Span span
    cdef int64_t start
    span.at = NULL
    span.size = -1
    if not is_null(column, row):
        start = end_of(column, row)
        span.at = column.data + start
        span.size = end_of(column, row + 1) - start
    return span


# --- Numbers --------------------------------------------------------------------------------------

cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)


cdef inline int varint_size(int64_t value) noexcept nogil:
    cdef uint64_t bits = zigzag(value)
    cdef int size = 1
    while bits >= 0x80:
        bits >>= 7
        size += 1
    return size


cdef inline uint8_t* put_varint(uint8_t* at, int64_t value) noexcept nogil:
    cdef uint64_t bits = zigzag(value)
    while bits >= 0x80:
        at[0] = <uint8_t>(bits | 0x80)
        bits >>= 7
        at += 1
    at[0] = <uint8_t>bits
    return at + 1


cdef inline uint8_t* put_span(uint8_t* at, Span span) noexcept nogil:
    at = put_varint(at, span.size)
    if span.size > 0:
        memcpy(at, span.at, span.size)
        at += span.size
    return at


cdef inline int64_t span_size(Span span) noexcept nogil:
    return varint_size(span.size) + max(span.size, 0)


cdef inline uint32_t murmur2(Span key) noexcept nogil:
    """
    Return the same hash as ``Utils.murmur2`` of the Java client.
    """
    cdef uint32_t m = 0x5bd1e995
    cdef uint32_t h = <uint32_t>0x9747b28c ^ <uint32_t>key.size
    cdef uint32_t k
    cdef const uint8_t* at = key.at
    cdef int64_t left = key.size
    while left >= 4:
        k = at[0] | <uint32_t>at[1] << 8 | <uint32_t>at[2] << 16 | <uint32_t>at[3] << 24
        k *= m
        k ^= k >> 24
        k *= m
        h *= m
        h ^= k
        at += 4
        left -= 4
    if left == 3:
        h ^= <uint32_t>at[2] << 16
    if left >= 2:
        h ^= <uint32_t>at[1] << 8
    if left >= 1:
        h ^= at[0]
        h *= m
    h ^= h >> 13
    h *= m
    h ^= h >> 15
    return h


# --- Hashes of rows --------------------------------------------------------------------------------

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #if defined(_MSC_VER)
    #include <intrin.h>
    static uint64_t folded(uint64_t a, uint64_t b) {
        uint64_t high, low = _umul128(a, b, &high);
        return low ^ high;
    }
    #else
    static inline uint64_t folded(uint64_t a, uint64_t b) {
        unsigned __int128 product = (unsigned __int128)a * b;
        return (uint64_t)product ^ (uint64_t)(product >> 64);
    }
    #endif
    static inline uint64_t eight(const uint8_t *at) { uint64_t v; memcpy(&v, at, 8); return v; }
    static inline uint64_t four(const uint8_t *at) { uint32_t v; memcpy(&v, at, 4); return v; }

    #define FOLD_A 0xa0761d6478bd642fULL
    #define FOLD_B 0xe7037ed1a0b428dbULL
    #define FOLD_C 0x8ebc6af09c88c6e3ULL
    #define FOLD_D 0x589965cc75374cc3ULL

    /* Folded multiplications as in wyhash; three independent ones at a time are faster. */
    static uint64_t hashed(uint64_t seed, const uint8_t *at, int64_t size) {
        uint64_t a, b;
        int64_t left = size;
        seed ^= folded(seed ^ FOLD_A, (uint64_t)size ^ FOLD_B);
        if (size <= 0) return folded(seed ^ FOLD_C, (uint64_t)size ^ FOLD_D);
        if (size > 16) {
            if (size > 48) {
                uint64_t second = seed, third = seed;
                do {
                    seed = folded(eight(at) ^ FOLD_B, eight(at + 8) ^ seed);
                    second = folded(eight(at + 16) ^ FOLD_C, eight(at + 24) ^ second);
                    third = folded(eight(at + 32) ^ FOLD_D, eight(at + 40) ^ third);
                    at += 48;
                    left -= 48;
                } while (left > 48);
                seed ^= second ^ third;
            }
            while (left > 16) {
                seed = folded(eight(at) ^ FOLD_B, eight(at + 8) ^ seed);
                at += 16;
                left -= 16;
            }
            a = eight(at + left - 16);
            b = eight(at + left - 8);
        } else if (size >= 4) {
            a = four(at) << 32 | four(at + (size >> 3 << 2));
            b = four(at + size - 4) << 32 | four(at + size - 4 - (size >> 3 << 2));
        } else {
            a = (uint64_t)at[0] << 16 | (uint64_t)at[size >> 1] << 8 | at[size - 1];
            b = 0;
        }
        return folded(FOLD_B ^ (uint64_t)size, folded(a ^ FOLD_C, b ^ seed));
    }
    """
    uint64_t folded(uint64_t a, uint64_t b) noexcept nogil
    uint64_t hashed(uint64_t seed, const uint8_t* at, int64_t size) noexcept nogil


# --- Open record batches --------------------------------------------------------------------------

@cython.final
cdef class Payload:
    """
    The records of one batch, with space for its header before them: a writable buffer of both.
    """

    cdef uint8_t* start
    cdef Py_ssize_t size
    cdef readonly int count
    cdef readonly int64_t base_timestamp
    cdef readonly int64_t max_timestamp

    def __dealloc__(self):
        free(self.start)

    def __len__(self):
        return self.size

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.start, self.size, 0, flags)


cdef struct Slot:
    # The open batch of one partition; without records, no memory is allocated.
    uint8_t* start
    size_t used
    size_t capacity
    int topic
    int32_t count
    int64_t base_timestamp
    int64_t max_timestamp


cdef struct Topic:
    int first_slot
    int partitions
    # The partitions with a leader (a section of the encoder's array), and the sticky one for rows
    # with neither a key nor a partition.
    int available_start
    int available_count
    int sticky
    uint64_t name_hash


@cython.final
cdef class RecordEncoder:
    """
    Fills batches of about ``batch_bytes``; records of more than ``record_bytes`` are rejected.

    Rows with neither a key nor a partition go to one partition until its batch is full (KIP-480);
    ``seed`` seeds the choice of partitions. With ``hashes``, ``content`` is the sum of the hashes
    of all rows. The hash of a row covers topic, key, value, headers, and partition and timestamp if
    the row has them. The sum does not depend on the machine, the order of rows, or the batches.
    """

    cdef Slot* slots
    cdef int slot_count
    cdef Topic* topics
    cdef int topic_count
    cdef int32_t* available
    cdef int available_count
    cdef size_t batch_bytes
    cdef int64_t record_bytes
    cdef uint64_t random_state
    cdef size_t open_size
    cdef bint hashes
    cdef readonly uint64_t content
    # The rows being encoded; the owner keeps their arrays alive.
    cdef object owner
    cdef int64_t row
    cdef int64_t rows
    cdef int64_t now_ms
    cdef Column key
    cdef Column value
    cdef Column partition
    cdef Column timestamp
    cdef Column headers
    cdef Column pairs
    cdef Column header_key
    cdef Column header_value
    cdef const int32_t* topic_of
    cdef object numbers

    def __cinit__(
        self, size_t batch_bytes, int64_t record_bytes, uint64_t seed, *, bint hashes=False
    ):
        self.hashes = hashes
        self.batch_bytes = batch_bytes
        self.record_bytes = record_bytes
        self.random_state = seed | 1

    def __dealloc__(self):
        cdef int slot
        for slot in range(self.slot_count):
            free(self.slots[slot].start)
        free(self.slots)
        free(self.topics)
        free(self.available)

    @property
    def open_bytes(self):
        """
        The total size of the batches that are not full yet.
        """
        return self.open_size

    def add_topic(self, int partitions, available, const uint8_t[::1] name=b""):
        """
        Add a topic; return its number and the slot of partition 0.

        The slots of the other partitions follow. ``available`` has the partitions with a leader; if
        it is empty, all partitions are used.
        """
        cdef list usable = list(available) or list(range(partitions))
        cdef int first = self.slot_count
        cdef int index, partition, slot
        cdef Topic* topic
        self.slots = <Slot*>enlarged(self.slots, (first + partitions) * sizeof(Slot))
        self.topics = <Topic*>enlarged(self.topics, (self.topic_count + 1) * sizeof(Topic))
        self.available = <int32_t*>enlarged(
            self.available, (self.available_count + len(usable)) * sizeof(int32_t)
        )
        topic = &self.topics[self.topic_count]
        topic.first_slot = first
        topic.partitions = partitions
        topic.available_start = self.available_count
        topic.available_count = len(usable)
        for index, partition in enumerate(usable):
            self.available[self.available_count + index] = partition
        self.available_count += len(usable)
        for slot in range(first, first + partitions):
            self.slots[slot].start = NULL
            self.slots[slot].used = 0
            self.slots[slot].capacity = 0
            self.slots[slot].count = 0
            self.slots[slot].topic = self.topic_count
        self.slot_count += partitions
        topic.name_hash = hashed(0, &name[0] if len(name) else NULL, len(name))
        topic.sticky = -1
        self.stick(topic)
        self.topic_count += 1
        return self.topic_count - 1, first

    def feed(self, owner, int64_t rows, columns, numbers, int64_t now_ms):
        """
        Start encoding rows; ``columns`` has the tuples of :func:`column_of` by name.

        ``numbers`` is an int32 buffer with the topic number of each row. ``now_ms`` is the
        timestamp of rows without one. ``owner`` is kept until the rows are encoded.
        """
        cdef const int32_t[::1] view
        self.key = column_of(columns.get("key"))
        self.value = column_of(columns.get("value"))
        self.partition = column_of(columns.get("partition"))
        self.timestamp = column_of(columns.get("timestamp"))
        self.headers = column_of(columns.get("headers"))
        self.pairs = column_of(columns.get("pairs"))
        self.header_key = column_of(columns.get("header key"))
        self.header_value = column_of(columns.get("header value"))
        view = numbers
        if len(view) != rows:
            raise ValueError(f"{len(view)} topics for {rows} rows")
        self.topic_of = &view[0] if rows else NULL
        self.numbers = view
        self.owner = owner
        self.row = 0
        self.rows = rows
        self.now_ms = now_ms

    def fill(self):
        """
        Encode rows until a batch is full, and return its slot; return -1 when all rows are encoded.

        Call :meth:`take` for the slot before the next call. Raises :class:`RowError`.
        """
        cdef int slot
        while self.row < self.rows:
            slot = self.encode()
            if slot >= 0:
                return slot
            self.row += 1
        self.owner = None
        self.numbers = None
        return -1

    def take(self, int slot):
        """
        Return the records of a slot and start a new batch in it; None if it is empty.
        """
        cdef Slot* taken
        cdef Payload payload
        if not 0 <= slot < self.slot_count:
            raise IndexError(slot)
        taken = &self.slots[slot]
        if taken.count == 0:
            return None
        payload = Payload.__new__(Payload)
        payload.start = taken.start
        payload.size = taken.used
        payload.count = taken.count
        payload.base_timestamp = taken.base_timestamp
        payload.max_timestamp = taken.max_timestamp
        self.open_size -= taken.used
        taken.start = NULL
        taken.used = 0
        taken.capacity = 0
        taken.count = 0
        return payload

    def filled(self):
        """
        Return the slots with records in them.
        """
        cdef int slot
        return [slot for slot in range(self.slot_count) if self.slots[slot].count]

    cdef void stick(self, Topic* topic) noexcept:
        """
        Choose another sticky partition, if there is one.
        """
        cdef int index, previous = topic.sticky
        cdef int32_t* available = self.available + topic.available_start
        # xorshift64*: any uniform choice will do.
        self.random_state ^= self.random_state >> 12
        self.random_state ^= self.random_state << 25
        self.random_state ^= self.random_state >> 27
        index = <int>(
            ((self.random_state * <uint64_t>2685821657736338717) >> 33) % topic.available_count
        )
        topic.sticky = available[index]
        if topic.sticky == previous and topic.available_count > 1:
            topic.sticky = available[(index + 1) % topic.available_count]

    cdef int destination(self, Topic* topic, Span key) except -1:
        cdef int32_t requested
        if not is_null(&self.partition, self.row):
            requested = (<const int32_t*>self.partition.data)[self.row + self.partition.offset]
            if not 0 <= requested < topic.partitions:
                raise RowError(self.row, REASON_NO_PARTITION, topic.partitions)
            return requested
        if key.size >= 0:
            return (murmur2(key) & 0x7FFFFFFF) % <uint32_t>topic.partitions
        return topic.sticky

    cdef int64_t millis(self) except? -1:
        cdef int64_t micros
        if is_null(&self.timestamp, self.row):
            return self.now_ms
        micros = (<const int64_t*>self.timestamp.data)[self.row + self.timestamp.offset]
        if micros < FIRST_MICROS:
            raise RowError(self.row, REASON_TOO_EARLY, micros)
        return micros // 1000

    cdef int64_t headers_size(self, int64_t first, int64_t end) except -1:
        cdef int64_t header, size = varint_size(end - first)
        for header in range(first, end):
            if is_null(&self.pairs, header) or is_null(&self.header_key, header):
                raise RowError(self.row, REASON_NO_HEADER_KEY, header - first)
            size += span_size(span_of(&self.header_key, header))
            size += span_size(span_of(&self.header_value, header))
        return size

    cdef int encode(self) except -2:
        """
        Append the row to its batch and return -1; if the batch is full, return its slot instead.
        """
        cdef Topic* topic = &self.topics[self.topic_of[self.row]]
        cdef Span key = span_of(&self.key, self.row)
        cdef Span value = span_of(&self.value, self.row)
        cdef int partition = self.destination(topic, key)
        cdef int slot_number = topic.first_slot + partition
        cdef Slot* slot = &self.slots[slot_number]
        cdef int64_t millis = self.millis()
        cdef int64_t first = 0, end = 0, header, body
        cdef size_t max_size
        cdef uint8_t* at
        if not is_null(&self.headers, self.row):
            first = end_of(&self.headers, self.row)
            end = end_of(&self.headers, self.row + 1)
        body = span_size(key) + span_size(value) + self.headers_size(first, end)
        if body + MAX_OVERHEAD + HEADER > self.record_bytes:
            raise RowError(self.row, REASON_TOO_LARGE, body + MAX_OVERHEAD + HEADER)
        max_size = body + MAX_OVERHEAD
        if slot.count and slot.used + max_size > self.batch_bytes:
            if partition == topic.sticky:
                self.stick(topic)
            return slot_number
        if slot.used + max_size > slot.capacity:
            self.grow(slot, max_size)
        if slot.count == 0:
            slot.used = HEADER
            slot.base_timestamp = slot.max_timestamp = millis
            self.open_size += HEADER
        body += 1 + varint_size(millis - slot.base_timestamp) + varint_size(slot.count)
        at = put_varint(slot.start + slot.used, body)
        at[0] = 0
        at = put_varint(at + 1, millis - slot.base_timestamp)
        at = put_varint(at, slot.count)
        at = put_span(at, key)
        at = put_span(at, value)
        at = put_varint(at, end - first)
        for header in range(first, end):
            at = put_span(at, span_of(&self.header_key, header))
            at = put_span(at, span_of(&self.header_value, header))
        self.open_size += (at - slot.start) - slot.used
        slot.used = at - slot.start
        slot.count += 1
        slot.max_timestamp = max(slot.max_timestamp, millis)
        if self.hashes:
            self.content += self.hash_of(topic, key, value, millis, first, end)
        return -1

    cdef uint64_t hash_of(
        self, Topic* topic, Span key, Span value, int64_t millis, int64_t first, int64_t end
    ) noexcept nogil:
        cdef uint64_t result = hashed(topic.name_hash, key.at, key.size)
        cdef int64_t partition, header
        cdef Span part
        result = hashed(result, value.at, value.size)
        if not is_null(&self.partition, self.row):
            partition = (<const int32_t*>self.partition.data)[self.row + self.partition.offset]
            result = hashed(result + 1, <const uint8_t*>&partition, sizeof(partition))
        if not is_null(&self.timestamp, self.row):
            result = hashed(result + 2, <const uint8_t*>&millis, sizeof(millis))
        for header in range(first, end):
            part = span_of(&self.header_key, header)
            result = hashed(result + 3, part.at, part.size)
            part = span_of(&self.header_value, header)
            result = hashed(result, part.at, part.size)
        return result

    cdef int grow(self, Slot* slot, size_t more) except -1:
        cdef size_t used = slot.used if slot.count else HEADER
        cdef size_t doubled = min(2 * slot.capacity, self.batch_bytes)
        cdef size_t capacity = max(used + more, doubled, MIN_CAPACITY)
        slot.start = <uint8_t*>enlarged(slot.start, capacity)
        slot.capacity = capacity
        return 0


cdef void* enlarged(void* start, size_t size) except NULL:
    cdef void* moved = realloc(start, max(size, 1))
    if moved == NULL:
        raise MemoryError(f"no {size} bytes for records")
    return moved


def partition_for(const uint8_t[::1] key, int partitions):
    """
    Return the partition that the Java client's default partitioner chooses for a key.
    """
    cdef Span span
    span.at = &key[0] if len(key) else NULL
    span.size = len(key)
    return (murmur2(span) & 0x7FFFFFFF) % <uint32_t>partitions
