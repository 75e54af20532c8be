# Shared by the decoders of binary encodings, which include it after _columns.pxi.

cdef inline int64_t left(Parser* parser) noexcept nogil:
    return parser.end - parser.at


cdef inline int ended(Parser* parser) noexcept nogil:
    parser.at = parser.end
    return malformed(parser, ENDED)


cdef inline int64_t from_zigzag(uint64_t bits) noexcept nogil:
    return <int64_t>(bits >> 1) ^ -<int64_t>(bits & 1)


cdef Node* find_node(Node* node, int number) noexcept:
    cdef int i
    cdef Node* descendant
    if node.number == number:
        return node
    for i in range(node.child_count):
        descendant = find_node(&node.children[i], number)
        if descendant != NULL:
            return descendant
    return NULL


cdef void* with_more_room(void* entries, Py_ssize_t* room, size_t size) except NULL:
    """
    Return a table with about twice the room, which may have moved; ``size`` is an entry's size.
    """
    cdef Py_ssize_t more = 2 * room[0] + 8
    cdef void* moved = realloc(entries, more * size)
    if moved == NULL:
        raise MemoryError
    room[0] = more
    return moved
