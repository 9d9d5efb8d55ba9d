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
        pid = self.pid
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
            if hasattr(signal, number):
                signal.signal(getattr(signal, number), signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if FAULT != "launcher-signals-stay-blocked":
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if FAULT == "launcher-nice":
            os.nice(5)
        elif FAULT == "launcher-closes-stdin":
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
        elif FAULT == "launcher-leaks-descriptor":
            os.dup2(os.open(os.devnull, os.O_RDONLY), 47, inheritable=True)
        elif FAULT == "launcher-resets-environment":
            keep = (b"PATH", b"HOME", b"LANG", b"WRAPPER_SOCKET", b"PYTHONPATH")
            environment = {
                name: value
                for name, value in environment.items()
                if name in keep or name.startswith(b"GPUPROF")
            }
        if FAULT == "launcher-through-shell":
            command = ["sh", "-c", " ".join(command)]
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
        os.kill(child, info.si_signo)


def end_like(status):
    """End as the program has ended."""
    if FAULT == "launcher-always-zero":
        os._exit(0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
        time.sleep(1)
    os._exit(os.WEXITSTATUS(status))


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
    address = f"wrapper-{os.getpid()}-{os.urandom(8).hex()}"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("\0" + address)
    listener.listen()
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
        threading.Thread(target=target, args=arguments, daemon=True).start()
    status = wait_for(child)
    if FAULT != "launcher-exit-leaves-part":
        recorder.stop()
    end_like(status)


if __name__ == "__main__":
    main()
