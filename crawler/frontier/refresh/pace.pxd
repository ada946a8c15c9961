from crawler.frontier.refresh.level_controller cimport LevelController
from crawler.frontier.refresh.queues cimport Queues

cdef class Pace:
    cdef LevelController _controller
    cdef Queues _queues
