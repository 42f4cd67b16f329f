"""What a worker may do, per isolation level, as data. Nothing here runs anything.

Owns: the limits with their defaults and ceilings, the system calls, the ioctls and prctls, and which layer belongs to
which level. ``sandbox`` makes a bubblewrap command of it, ``seccomp`` filters; ``lineup_sdk.confine`` applies it.
``docs/isolation.md`` says in words what follows from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from lineup_protocol import limits

Level = Literal["S3", "S2", "S1"]
LEVELS: tuple[Level, ...] = ("S3", "S2", "S1")  # strongest first

MIB = 1024 * 1024


def level_satisfies(level: str, minimum: str) -> bool:
    """True if ``level`` is at least as strong as ``minimum``; an unknown or absent level satisfies nothing."""
    ranks: dict[str, int] = {name: rank for rank, name in enumerate(reversed(LEVELS))}
    return level in ranks and ranks[level] >= ranks.get(minimum, len(LEVELS))


@dataclass(frozen=True)
class WorkerLimits:
    """What one worker may use. A manifest may ask for less or, up to ``CEILINGS``, for more."""

    # private writable memory (RLIMIT_DATA; with a cgroup, all memory)
    memory_bytes: int = limits.WORKER_MEMORY_MB_DEFAULT * MIB
    tmp_bytes: int = limits.WORKER_TMP_MB_DEFAULT * MIB  # its private /tmp
    file_bytes: int = limits.WORKER_FILE_SIZE_MB_DEFAULT * MIB  # any one file
    open_files: int = limits.WORKER_OPEN_FILES_DEFAULT
    processes: int = 0  # children; 0 forbids fork altogether
    threads: int = limits.WORKER_PROCESSES_DEFAULT
    cpu_share: float = limits.WORKER_CPU_SHARE_DEFAULT  # of one processor
    stdout_bytes_per_s: int = limits.WORKER_STDOUT_KB_PER_SECOND_DEFAULT * 1024  # more is counted, not kept

    @classmethod
    def from_mapping(cls, asked: Mapping[str, Any]) -> WorkerLimits:
        """Defaults, overridden by the known names in ``asked``, each held within its floor and ceiling.

        And fewer ``open_files`` where so many processes would have too many together.
        """
        chosen: dict[str, Any] = {}
        for spec in fields(cls):
            value = asked.get(spec.name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                held = max(_FLOORS.get(spec.name, 1), min(value, getattr(CEILINGS, spec.name)))
                chosen[spec.name] = float(held) if spec.name == "cpu_share" else int(held)
        found = replace(cls(), **chosen)
        share = limits.WORKER_TREE_OPEN_FILES_MAX // (found.processes + 1)
        return replace(found, open_files=max(int(_FLOORS["open_files"]), min(found.open_files, share)))


CEILINGS = WorkerLimits(
    memory_bytes=limits.WORKER_MEMORY_MB_MAX * MIB,
    tmp_bytes=limits.WORKER_TMP_MB_MAX * MIB,
    file_bytes=limits.WORKER_FILE_SIZE_MB_MAX * MIB,
    open_files=limits.WORKER_OPEN_FILES_MAX,
    processes=limits.WORKER_PROCESSES_MAX,
    threads=limits.WORKER_PROCESSES_MAX,
    cpu_share=limits.WORKER_CPU_SHARE_MAX,
    stdout_bytes_per_s=limits.WORKER_STDOUT_KB_PER_SECOND_MAX * 1024,
)
# Below these an interpreter with ZeroMQ cannot start at all.
_FLOORS: dict[str, float] = {
    "memory_bytes": 48 * MIB,
    "open_files": 32,
    "threads": 8,
    "cpu_share": 0.05,
    "processes": 0,
}

# Address space over the memory limit: code, reserved and not yet used arenas (64 to 128 MiB per thread), shared maps.
ADDRESS_SPACE_EXTRA_BYTES = 1024 * MIB
WORKER_NICENESS = 5  # a busy worker gives way to the supervisor

# ---- paths inside the S3 sandbox

BUNDLE_DIR = "/app"
SOCKET_DIR = "/run/lineup"
SOCKET_NAME = "s"
PACKAGES_DIR = "/lineup"
SITE_DIR = "/site"
TMP_DIR = "/tmp"
SANDBOX_ID = 65534  # uid and gid seen inside: nobody

DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
# Read where they exist; names, times and time zones only.
DATA_FILES = ("/etc/ld.so.cache", "/etc/localtime", "/usr/share/zoneinfo")

# What a worker may read of itself below /proc/self: what libraries ask for to measure or to close what is theirs.
# Neither ``net`` (on S2 the machine's own connections and sockets) nor ``mountinfo`` (where the bundle lies).
PROC_SELF = ("cmdline", "environ", "fd", "limits", "maps", "smaps", "smaps_rollup", "stat", "statm", "status")

# ---- system calls (seccomp). Whatever is not named gets ENOSYS, so a newer kernel adds nothing.


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


ALLOWED = _words(
    """
    read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 close close_range lseek
    open openat openat2 creat stat fstat lstat newfstatat statx statfs fstatfs access faccessat faccessat2
    readlink readlinkat getdents getdents64 getcwd chdir fchdir umask
    mkdir mkdirat rmdir unlink unlinkat rename renameat renameat2
    link linkat symlink symlinkat
    truncate ftruncate fallocate fsync fdatasync sync_file_range fadvise64 flock
    getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr
    dup dup2 dup3 pipe pipe2 poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait
    epoll_pwait epoll_pwait2 eventfd eventfd2 timerfd_create timerfd_settime timerfd_gettime signalfd signalfd4
    sendfile splice tee copy_file_range
    mmap munmap mprotect mremap madvise brk msync mincore membarrier
    rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigsuspend sigaltstack pause
    alarm getitimer setitimer timer_create timer_settime timer_gettime timer_getoverrun timer_delete
    kill tkill tgkill restart_syscall
    futex futex_waitv set_robust_list get_robust_list set_tid_address rseq arch_prctl
    gettimeofday time times clock_gettime clock_getres clock_nanosleep nanosleep getrandom
    sched_yield sched_getaffinity sched_getparam sched_getscheduler sched_get_priority_min sched_get_priority_max getcpu
    getpriority getrusage getrlimit sysinfo uname capget
    getpid getppid gettid getuid geteuid getgid getegid getresuid getresgid getgroups getpgid getpgrp getsid
    setsid setpgid
    exit exit_group wait4 waitid
    connect bind listen accept accept4 shutdown getsockname getpeername getsockopt setsockopt
    sendto recvfrom sendmsg recvmsg sendmmsg recvmmsg
    seccomp
    """
)

# On S3 these touch only the private /tmp. On S2 Landlock does not govern them, and they would reach the person's files.
ALLOWED_S3_ONLY = _words("chmod fchmod fchmodat fchmodat2 utime utimes utimensat futimesat")

# Named, so that the attempt is answered with EPERM ("not allowed") and not with ENOSYS ("unknown"), and is reported.
DENIED = _words(
    """
    execve execveat fork vfork memfd_create memfd_secret
    ptrace process_vm_readv process_vm_writev process_madvise kcmp pidfd_open pidfd_getfd pidfd_send_signal
    add_key request_key keyctl bpf perf_event_open userfaultfd io_uring_setup io_uring_enter io_uring_register
    mount umount2 pivot_root chroot move_mount open_tree fsopen fsconfig fsmount fspick mount_setattr setns unshare
    init_module finit_module delete_module kexec_load kexec_file_load reboot swapon swapoff acct quotactl syslog
    open_by_handle_at name_to_handle_at fanotify_init
    mknod mknodat setuid setgid setreuid setregid setresuid setresgid setgroups setfsuid setfsgid capset personality
    sethostname setdomainname settimeofday clock_settime clock_adjtime adjtimex
    setpriority sched_setparam sched_setattr sched_setaffinity ioprio_set
    chown fchown lchown fchownat setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr
    shmget shmat shmctl msgget semget mq_open
    rt_sigqueueinfo rt_tgsigqueueinfo
    """
)

# The only socket domains and types of a worker: (domain, type). A datagram socket could be sent anywhere by name.
AF_UNIX, SOCK_STREAM, SOCK_SEQPACKET = 1, 1, 5
SOCKETS = ((AF_UNIX, SOCK_STREAM),)
SOCKETPAIRS = ((AF_UNIX, SOCK_STREAM), (AF_UNIX, SOCK_SEQPACKET))
SOCKET_TYPE_MASK = 0xF  # the rest are SOCK_NONBLOCK and SOCK_CLOEXEC

CLONE_THREAD = 0x0001_0000
# CLONE_NEW{NS,CGROUP,UTS,IPC,USER,PID,NET,TIME}: never, not even where children are allowed.
CLONE_NAMESPACE_BITS = (0x0002_0000, 0x0200_0000, 0x0400_0000, 0x0800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000, 0x80)
CLONE_NAMESPACES = sum(CLONE_NAMESPACE_BITS)

IOCTLS = {  # no TIOCSTI, no TIOCLINUX: neither is here
    "TCGETS": 0x5401,
    "TIOCGPGRP": 0x540F,
    "TIOCGWINSZ": 0x5413,
    "FIONREAD": 0x541B,
    "FIONBIO": 0x5421,
    "FIONCLEX": 0x5450,
    "FIOCLEX": 0x5451,
}
# No more than the calls that are tried to get out: what else these two may ask for is only unknown.
DENIED_IOCTLS = {"TIOCSTI": 0x5412, "TIOCLINUX": 0x541C, "TIOCCONS": 0x541D}
DENIED_PRCTLS = {"PR_SET_PDEATHSIG": 1, "PR_SET_DUMPABLE": 4, "PR_SET_PTRACER": 0x5961_6D61, "PR_SET_MM": 35}
PRCTLS = {"PR_GET_DUMPABLE": 3, "PR_SET_NAME": 15, "PR_GET_NAME": 16, "PR_SET_SECCOMP": 22, "PR_SET_VMA": 0x5356_4D41}

# Locks stay: SQLite needs them in its own tmp, and no filter sees whether a descriptor is one of a shared file.
FCNTLS = {
    "F_DUPFD": 0,
    "F_GETFD": 1,
    "F_SETFD": 2,
    "F_GETFL": 3,
    "F_SETFL": 4,
    "F_GETLK": 5,
    "F_SETLK": 6,
    "F_SETLKW": 7,
    "F_OFD_GETLK": 36,
    "F_OFD_SETLK": 37,
    "F_OFD_SETLKW": 38,
    "F_DUPFD_CLOEXEC": 1030,
    "F_GETPIPE_SZ": 1032,
}
# A lease makes whoever opens the file for writing wait, and tells of it; so does a watch on a folder: both work on what
# may only be read and others read, too. An owner and a number make the kernel send signals. Larger pipes would take the
# pages that the pipes of all of the person's programs share.
DENIED_FCNTLS = {
    "F_SETLEASE": 1024,
    "F_NOTIFY": 1026,
    "F_SETOWN": 8,
    "F_SETOWN_EX": 15,
    "F_SETSIG": 10,
    "F_SETPIPE_SZ": 1031,
}

DOMAINS = 46  # of sockets, that Linux has numbers for
SOCKET_TYPES = 16

# libzmq sets its threads, as they begin, to the policy that they have; to another one no thread may be set. Numbers of
# threads are not told apart from other programs', so the seal takes the call away (``SEALED``).
SCHED_OTHER = 0

# The second filter, once the link is up and before the app is loaded: no new sockets at all, no change of how a program
# is scheduled (on S2 those of the person have numbers there, too), nor what the kernel counts for all of the person's
# programs together. ``sendmsg`` can carry descriptors, and so many of them may be under way;
# of epoll only what the link has already goes on (``EPOLL_NUMBERS``), and loops of an app poll.
SEALED: tuple[str, ...] = (
    "socket",
    "connect",
    "bind",
    "listen",
    "accept",
    "accept4",
    "sendmmsg",
    "epoll_create",
    "epoll_create1",
    "sched_setscheduler",
)
# Denied by the seal too, but for the one call each that ends it: the listener is handed over, the last filter loaded.
# What is let through must have exactly this value as that argument (counted from 0); the last filter denies it as well.
MSG_CONFIRM = 0x800  # means nothing to a unix socket
SECCOMP_FILTER_FLAG_TSYNC = 1
SEALED_LAST: tuple[tuple[str, int, int], ...] = (("sendmsg", 2, MSG_CONFIRM), ("seccomp", 1, SECCOMP_FILTER_FLAG_TSYNC))

# A watch belongs to an open file *and* a number: with few numbers a process cannot have many more watches than files.
# libzmq takes the numbers of the link when it closes; they are below this, because the link comes before all else.
EPOLL_CTL_ADD = 1
EPOLL_NUMBERS = 32
