# What the decoders of binary encodings share; they include it after _columns.pxi.

cdef extern from *:
    """
    typedef unsigned __int128 pykafka_uint128;
    """
    ctypedef unsigned long long uint128 "pykafka_uint128"


cdef inline int64_t left(Parser* parser) noexcept nogil:
    return parser.end - parser.at


cdef inline int ended(Parser* parser) noexcept nogil:
    parser.at = parser.end
    return malformed(parser, ENDED)


cdef Node* find_node(Node* node, int number) noexcept:
    cdef int i
    cdef Node* found
    if node.number == number:
        return node
    for i in range(node.child_count):
        found = find_node(&node.children[i], number)
        if found != NULL:
            return found
    return NULL
