"""
Virtual time, processes, threads and sockets; one seed decides every order and every delay.
"""
