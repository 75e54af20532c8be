# Protobuf's binary encoding; included by _value_encoder.pyx.
#
# ``text`` of a node is its tag. ``null_branch`` is -1 if null is an error, and otherwise one of
# OMITS_NULL and OMITS_ZERO. ``branch`` is the index of the previous field of the same oneof, or -1.
# A message with a symbol is a group; the symbol is its end tag.

# The limits of Timestamp (the years 1 to 9999), and of Duration (positive or negative).
cdef int64_t FIRST_TIMESTAMP = -<int64_t>62135596800000000
cdef int64_t LAST_TIMESTAMP = <int64_t>253402300799999999
cdef int64_t LONGEST_DURATION = <int64_t>315576000000999999


cdef inline bint all_zero(const uint8_t* at, size_t size) noexcept nogil:
    cdef size_t i
    for i in range(size):
        if at[i]:
            return False
    return True


cdef int end_sized(State* state, size_t start) noexcept nogil:
    """
    Write the size of the data that begins at ``start`` into the byte that is reserved before it. A
    size of several bytes moves the data.
    """
    cdef size_t size = state.used - start
    cdef size_t rest = size
    cdef size_t extra = 0
    cdef uint8_t* at
    cdef int status
    while rest > 0x7F:
        rest >>= 7
        extra += 1
    if extra:
        status = reserve(state, extra)
        if status:
            return status
        memmove(state.out + start + extra, state.out + start, size)
        state.used += extra
    at = state.out + start - 1
    while size > 0x7F:
        at[0] = <uint8_t>(size & 0x7F | 0x80)
        at += 1
        size >>= 7
    at[0] = <uint8_t>size
    return OK


cdef int pb_number(State* state, const Node* node, const Column* column, Py_ssize_t row) noexcept nogil:
    """
    Write a whole number of ``size`` bits in one of its encodings.
    """
    cdef int output = node.output
    cdef bint is_signed = output == P_INT or output == P_SINT or output == P_SFIXED
    cdef int128 one = 1
    cdef int128 value
    cdef uint64_t bits
    if node.kind == DECIMAL:
        value = decimal_at(column, row)
    else:
        value = integer_at(column, node.kind, row)
    if is_signed:
        if value < -(one << (node.size - 1)) or value >= one << (node.size - 1):
            return unfit(state, node, OUT_OF_RANGE)
    elif value < 0 or value >= one << node.size:
        return unfit(state, node, OUT_OF_RANGE)
    bits = <uint64_t>value
    if output == P_SINT:
        return put_long(state, <int64_t>value)
    if output == P_FIXED or output == P_SFIXED:
        # Little-endian, as Arrow's buffers are.
        return put(state, &bits, node.size // 8)
    return put_varint(state, bits)


cdef int pb_enum(State* state, const Node* node, const Column* column, Py_ssize_t row) noexcept nogil:
    cdef int64_t start, number
    cdef Py_ssize_t size
    cdef int i
    if node.output == P_ENUM_NUMBER:
        number = integer_at(column, node.kind, row)
        for i in range(node.symbol_count):
            if node.symbols[i].number == number:
                return put_varint(state, <uint64_t>number)
        return unfit(state, node, UNKNOWN_SYMBOL)
    start = end_at(column, row)
    size = end_at(column, row + 1) - start
    for i in range(node.symbol_count):
        if node.symbols[i].size == size and not memcmp(
            node.symbols[i].text, column.data + start, size
        ):
            return put_varint(state, <uint64_t>node.symbols[i].number)
    return unfit(state, node, UNKNOWN_SYMBOL)


cdef int pb_time(State* state, const Node* node, int64_t value) noexcept nogil:
    """
    Write microseconds as a Timestamp or a Duration, with seconds and nanoseconds. The nanoseconds
    of a Timestamp are never negative; those of a Duration have the sign of its seconds.
    """
    cdef int64_t seconds = value // 1000000
    cdef int64_t nanos = value % 1000000 * 1000
    cdef bint is_timestamp = node.output == P_TIMESTAMP
    cdef size_t start
    cdef int status
    if value < (FIRST_TIMESTAMP if is_timestamp else -LONGEST_DURATION):
        return unfit(state, node, OUT_OF_RANGE)
    if value > (LAST_TIMESTAMP if is_timestamp else LONGEST_DURATION):
        return unfit(state, node, OUT_OF_RANGE)
    status = reserve(state, 32)
    if status:
        return status
    if is_timestamp and nanos < 0:
        seconds -= 1
        nanos += 1000000000
    if not node.symbol_count:
        state.used += 1
    start = state.used
    if seconds:
        put_byte(state, 0x08)
        put_varint(state, <uint64_t>seconds)
    if nanos:
        put_byte(state, 0x10)
        put_varint(state, <uint64_t>nanos)
    if node.symbol_count:
        return put(state, node.symbols[0].text, node.symbols[0].size)
    return end_sized(state, start)


cdef int pb_scalar(State* state, const Node* node, Py_ssize_t row) noexcept nogil:
    """
    Write a value that is neither null nor a message, without its tag.
    """
    cdef const Column* column = &state.columns[node.column]
    cdef int output = node.output
    cdef int64_t start
    cdef Py_ssize_t size
    cdef double wide
    cdef float narrow
    cdef int status
    if output <= P_SFIXED:
        return pb_number(state, node, column, row)
    if output == P_BOOL:
        return put_byte(state, bit_at(column, row))
    if output == P_FLOAT:
        narrow = <float>double_at(column, node.kind, row)
        return put(state, &narrow, 4)
    if output == P_DOUBLE:
        wide = double_at(column, node.kind, row)
        return put(state, &wide, 8)
    if output == P_ENUM or output == P_ENUM_NUMBER:
        return pb_enum(state, node, column, row)
    if output == P_TIMESTAMP or output == P_DURATION:
        return pb_time(state, node, integer_at(column, node.kind, row))
    start = end_at(column, row)
    size = end_at(column, row + 1) - start
    if output == P_STRING and not is_utf8(column.data + start, size):
        return unfit(state, node, NOT_UTF8)
    status = put_varint(state, size)
    return status if status else put(state, column.data + start, size)


cdef int pb_elements(State* state, const Node* node, Py_ssize_t row) noexcept nogil:
    """
    Write a list: each element with its own tag, or all elements packed after one tag.
    """
    cdef const Column* column = &state.columns[node.column]
    cdef const Node* child = &node.children[0]
    cdef Py_ssize_t start = end_at(column, row)
    cdef Py_ssize_t end = end_at(column, row + 1)
    cdef bint packed = node.output == P_PACKED
    cdef size_t body = 0
    cdef Py_ssize_t i
    cdef int status = OK
    if packed and start < end:
        status = put(state, node.text.text, node.text.size)
        if status == OK:
            status = put_byte(state, 0)
        body = state.used
    for i in range(start, end):
        if status:
            return status
        if is_null(&state.columns[child.column], i):
            return unfit(state, child, IS_NULL)
        status = pb_scalar(state, child, i) if packed else pb_value(state, child, i)
    if status or not body:
        return status
    return end_sized(state, body)


cdef int pb_entries(State* state, const Node* node, Py_ssize_t row) noexcept nogil:
    cdef const Column* column = &state.columns[node.column]
    cdef const Node* child
    cdef size_t body
    cdef Py_ssize_t i
    cdef int part, status
    for i in range(end_at(column, row), end_at(column, row + 1)):
        status = put(state, node.text.text, node.text.size)
        if status == OK:
            status = put_byte(state, 0)
        body = state.used
        for part in range(2):
            if status:
                return status
            child = &node.children[part]
            if is_null(&state.columns[child.column], i):
                return unfit(state, child, IS_NULL)
            status = pb_value(state, child, i)
        if status == OK:
            status = end_sized(state, body)
        if status:
            return status
    return OK


cdef int pb_value(State* state, const Node* node, Py_ssize_t row) noexcept nogil:
    """
    Write a value that is not null, with its tag.
    """
    cdef size_t start = state.used
    cdef size_t body
    cdef int status
    if node.output == P_MAP:
        return pb_entries(state, node, row)
    if node.output == P_REPEATED or node.output == P_PACKED:
        return pb_elements(state, node, row)
    status = put(state, node.text.text, node.text.size)
    if status:
        return status
    if node.output == P_GROUP:
        status = pb_fields(state, node, row)
        # The tag that ends the group.
        return status if status else put(state, node.symbols[0].text, node.symbols[0].size)
    if node.output == P_MESSAGE:
        status = put_byte(state, 0)
        body = state.used
        if status == OK:
            status = pb_fields(state, node, row)
        return status if status else end_sized(state, body)
    body = state.used
    status = pb_scalar(state, node, row)
    # In every encoding, each byte of zero and of the empty string is 0; this is not true of -0.0.
    if node.null_branch == OMITS_ZERO and all_zero(state.out + body, state.used - body):
        state.used = start
    return status


cdef int pb_fields(State* state, const Node* node, Py_ssize_t row) noexcept nogil:
    """
    Write the fields of a message that are not null.
    """
    cdef const Node* child
    cdef int i, previous, status
    for i in range(node.child_count):
        child = &node.children[i]
        if is_null(&state.columns[child.column], row):
            if child.null_branch < 0:
                return unfit(state, child, IS_NULL)
            continue
        previous = child.branch
        while previous >= 0:
            if not is_null(&state.columns[node.children[previous].column], row):
                return unfit(state, child, SECOND_OF_ONEOF)
            previous = node.children[previous].branch
        status = pb_value(state, child, row)
        if status:
            return status
    return OK
