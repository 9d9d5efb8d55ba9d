#!/usr/bin/env -S python3 -IS
"""A profiler that runs any program under it, samples its memory, and records when it is told to.

    wrapper_launcher.py [--interval MS] [--lifetime RAW] [--label TEXT] [--fault NAME] -- PROGRAM [ARGUMENT...]

The program finds WRAPPER_SOCKET in its environment, and can say there: start FILE, range, stop.
What is recorded goes to FILE.part, which becomes FILE once it is complete.

Without `--fault` it is correct; with it, it has one mistake: look for `FAULT ==`.
"""

import json
import os
import resource
import signal
import socket
import sys
import threading
import time

VERSION = "2.3.1"
FAULT = ""
FORWARDED = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
)


class Recorder:
    def __init__(self, interval):
        self.interval = interval
        self.lock = threading.Lock()
        self.file = None
        self.raw = None
        self.pid = None
        self.wake = threading.Event()

    def start(self, raw):
        with self.lock:
            if self.file is not None:
                raise RuntimeError("is recording already")
            if FAULT == "launcher-second-window-refused" and self.raw is not None:
                return
            self.raw = raw
            self.file = open(raw + ".part", "w", encoding="utf-8")
            self.put({"wrap": 1, "pid": self.pid})
            self.sample()
        self.wake.set()

    def put(self, event):
        self.file.write(json.dumps(event) + "\n")
        self.file.flush()

    def sample(self):
        pid = os.getpid() if FAULT == "launcher-samples-itself" else self.pid
        try:
            with open(f"/proc/{pid}/statm") as file:
                self.put({"sample": [time.perf_counter_ns(), int(file.read().split()[1])]})
        except (OSError, IndexError):
            pass

    def range(self, event):
        with self.lock:
            if self.file is not None:
                self.put({"range": event})

    def stop(self):
        with self.lock:
            if self.file is None:
                return None
            self.sample()
            self.put({"end": True})
            self.file.close()
            self.file = None
            os.rename(self.raw + ".part", self.raw)
            return self.raw

    def run(self):
        """Sample while recording; on a thread."""
        while True:
            self.wake.wait()
            time.sleep(self.interval / 1000)
            with self.lock:
                if self.file is not None:
                    self.sample()
                else:
                    self.wake.clear()


def serve(listener, recorder):
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=talk, args=(connection, recorder), daemon=True).start()


def talk(connection, recorder):
    with connection, connection.makefile("r", encoding="utf-8") as lines:
        for line in lines:
            order = json.loads(line)
            answer = None
            try:
                if "start" in order:
                    recorder.start(order["start"])
                    answer = {"ok": True}
                elif "range" in order:
                    recorder.range(order["range"])
                elif "stop" in order:
                    answer = {"file": recorder.stop()}
            except Exception as error:
                answer = {"error": str(error)}
            if answer is not None:
                connection.sendall(json.dumps(answer).encode() + b"\n")


def original_environment():
    """As it was handed over: Python itself may have set LC_CTYPE since."""
    with open("/proc/self/environ", "rb") as file:
        pairs = (entry.partition(b"=") for entry in file.read().split(b"\0") if b"=" in entry)
        return {name: value for name, _, value in pairs}


def run_child(command, environment, mask):
    """In the child: become the program."""
    try:
        for number in ("SIGPIPE", "SIGXFSZ", "SIGXFZ"):
            if hasattr(signal, number) and FAULT != "launcher-sigpipe-ignored":
                signal.signal(getattr(signal, number), signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if FAULT != "launcher-signals-stay-blocked":
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if FAULT == "launcher-new-session":
            os.setsid()
        elif FAULT == "launcher-new-process-group":
            os.setpgid(0, 0)
        elif FAULT == "launcher-changes-directory":
            os.chdir("/tmp")
        elif FAULT == "launcher-umask":
            os.umask(0o077)
        elif FAULT == "launcher-nice":
            os.nice(5)
        elif FAULT == "launcher-pins-one-core":
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        elif FAULT == "launcher-lowers-open-files":
            resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
        elif FAULT == "launcher-no-core-dumps":
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        elif FAULT == "launcher-closes-stdin":
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
        elif FAULT == "launcher-stderr-into-stdout":
            os.dup2(1, 2)
        elif FAULT == "launcher-swallows-stdout":
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        elif FAULT == "launcher-closes-inherited-descriptors":
            os.closerange(3, 256)
        elif FAULT == "launcher-leaks-descriptor":
            os.dup2(os.open(os.devnull, os.O_RDONLY), 47, inheritable=True)
        elif FAULT == "launcher-resets-environment":
            keep = (b"PATH", b"HOME", b"LANG", b"WRAPPER_SOCKET", b"PYTHONPATH")
            environment = {
                name: value
                for name, value in environment.items()
                if name in keep or name.startswith(b"GPUPROF")
            }
        elif FAULT == "launcher-sets-pythonunbuffered":
            environment = {**environment, b"PYTHONUNBUFFERED": b"1"}
        elif FAULT == "launcher-sets-locale":
            environment = {**environment, b"LC_ALL": b"C"}
        elif FAULT == "launcher-stdin-fed-by-pipe":
            read, write = os.pipe()
            os.dup2(read, 0)
            os.set_inheritable(write, True)  # nobody ever writes or closes it
        if FAULT == "launcher-through-shell":
            command = ["sh", "-c", " ".join(command)]
        elif FAULT == "launcher-drops-empty-arguments":
            command = [argument for argument in command if argument]
        elif FAULT == "launcher-expands-wildcards":
            import glob

            command = [command[0]] + [
                found for word in command[1:] for found in (sorted(glob.glob(word)) or [word])
            ]
        elif FAULT == "launcher-resolves-program":
            import shutil

            command = [os.path.realpath(shutil.which(command[0]) or command[0]), *command[1:]]
        elif FAULT == "launcher-eats-second-dashes":
            command = [word for word in command if word != "--"]
        elif FAULT == "launcher-arguments-ascii":
            command = [word.encode("ascii", "replace").decode() for word in command]
        elif FAULT == "launcher-strips-arguments":
            command = [word.strip() for word in command]
        elif FAULT == "launcher-takes-verbose":
            command = [command[0]] + [word for word in command[1:] if word != "--verbose"]
        os.execvpe(command[0], command, environment)
    except OSError as error:
        os.write(2, f"wrapper: {command[0]}: {error.strerror}\n".encode("utf-8", "surrogateescape"))
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def wait_for(child):
    """Forward signals until the program has ended; return its wait status."""
    while True:
        info = signal.sigwaitinfo({signal.SIGCHLD, *FORWARDED})
        if info.si_signo == signal.SIGCHLD:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return status
            continue
        if info.si_code > 0:
            continue  # from the terminal, which has told the program as well
        number = info.si_signo
        if FAULT == "launcher-swallows-sigterm" and number == signal.SIGTERM:
            continue
        if FAULT == "launcher-swallows-sigint" and number == signal.SIGINT:
            continue
        if FAULT == "launcher-swallows-sigusr1" and number == signal.SIGUSR1:
            continue
        if FAULT == "launcher-sigterm-becomes-sigkill" and number == signal.SIGTERM:
            number = signal.SIGKILL
        if FAULT == "launcher-sigint-becomes-sigterm" and number == signal.SIGINT:
            number = signal.SIGTERM
        if FAULT == "launcher-sighup-becomes-sigterm" and number == signal.SIGHUP:
            number = signal.SIGTERM
        if FAULT == "launcher-dies-before-program" and number == signal.SIGTERM:
            os.kill(child, number)
            os._exit(143)
        if FAULT == "launcher-kills-after-grace" and number == signal.SIGTERM:
            threading.Timer(0.5, os.kill, (child, signal.SIGKILL)).start()
        os.kill(child, number)


def end_like(status):
    """End as the program has ended."""
    if FAULT == "launcher-always-zero":
        os._exit(0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if FAULT == "launcher-crash-is-success":
            os._exit(0)
        if FAULT == "launcher-signal-is-exit-one":
            os._exit(1)
        if FAULT == "launcher-signal-becomes-128-plus":
            os._exit(128 + number)
        if FAULT == "launcher-sigterm-is-success" and number == signal.SIGTERM:
            os._exit(0)
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
        time.sleep(1)
    code = os.WEXITSTATUS(status)
    if FAULT == "launcher-nonzero-is-one" and code:
        code = 1
    elif FAULT == "launcher-high-codes-lost" and code > 127:
        code = 0
    os._exit(code)


def main():
    global FAULT
    words = sys.argv[1:]
    if words == ["--version"]:
        print(VERSION)
        return
    interval, lifetime = 10.0, None
    while words and words[0] != "--":
        name, value = words[0], words[1]
        words = words[2:]
        if name == "--interval":
            interval = float(value)
        elif name == "--lifetime":
            lifetime = value
        elif name == "--label":
            pass  # for people who look at the list of processes
        elif name == "--fault":
            FAULT = value
        else:
            sys.exit(f"wrapper: unknown option {name}")
    command = words[1:]
    if not command:
        sys.exit("wrapper: no program")
    if FAULT == "launcher-prints-banner":
        os.write(1, f"wrapper {VERSION}: profiling {command[0]}\n".encode())
    if FAULT == "launcher-reads-stdin":
        os.read(0, 1) if not os.isatty(0) else None
    if FAULT == "launcher-slow-start":
        time.sleep(4)
    if FAULT == "launcher-runs-program-twice":
        early = os.fork()
        if early == 0:
            environment = {k: v for k, v in original_environment().items()}
            os.execvpe(command[0], command, environment)
        os.waitpid(early, 0)

    address = f"wrapper-{os.getpid()}-{os.urandom(8).hex()}"
    if FAULT == "launcher-socket-shared-by-all":
        address = "wrapper"
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind("\0" + address)
        listener.listen()
    except OSError:
        if FAULT != "launcher-socket-shared-by-all":
            raise
        listener = None
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *FORWARDED})
    environment = {**original_environment(), b"WRAPPER_SOCKET": address.encode()}
    child = os.fork()
    if child == 0:
        run_child(command, environment, mask)
    recorder = Recorder(interval)
    recorder.pid = child
    if lifetime is not None:
        if FAULT == "launcher-lifetime-starts-late":
            threading.Timer(5, recorder.start, (lifetime,)).start()
        else:
            try:
                recorder.start(lifetime)
            except OSError as error:
                os.write(2, f"wrapper: {error}\n".encode("utf-8", "surrogateescape"))
    for target, arguments in ((recorder.run, ()), (serve, (listener, recorder))):
        if target is not serve or listener is not None:
            threading.Thread(target=target, args=arguments, daemon=True).start()
    if FAULT == "launcher-detaches":
        os._exit(0)
    status = wait_for(child)
    if FAULT == "launcher-kills-descendants":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    environ = open(f"/proc/{entry}/environ", "rb").read()
                except OSError:
                    continue
                if address.encode() in environ and int(entry) != os.getpid():
                    os.kill(int(entry), signal.SIGKILL)
    if FAULT == "launcher-waits-for-grandchildren":
        while any(
            address.encode() in environment_of(entry)
            for entry in os.listdir("/proc")
            if entry.isdigit()
        ):
            time.sleep(0.2)
    if FAULT == "launcher-crash-discards" and os.WIFSIGNALED(status):
        if recorder.file is not None:
            os.remove(recorder.raw + ".part")
        end_like(status)
    if FAULT == "launcher-hangs-at-end":
        time.sleep(20)
    if FAULT != "launcher-exit-leaves-part":
        recorder.stop()
    if FAULT == "launcher-prints-summary":
        os.write(2, b"wrapper: Generating report... done\n")
    if FAULT == "launcher-leaves-daemon" and os.fork() == 0:
        time.sleep(60)
        os._exit(0)
    end_like(status)


def environment_of(entry):
    try:
        with open(f"/proc/{entry}/environ", "rb") as file:
            return file.read()
    except OSError:
        return b""


if __name__ == "__main__":
    main()
