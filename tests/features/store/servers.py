"""Servers that misbehave on purpose."""

import socket
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import hiredis

Command = list[bytes]


class Listener:
    """Accepts on a free port and hands each connection, with its number, to a thread."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._socket.getsockname()[1]}"
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]

    def serve(self, number: int, client: socket.socket) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._socket.close()
        for connection in self._open:
            self._hang_up(connection)
        for thread in self._threads[1:]:
            thread.join()
        for connection in self._open:
            connection.close()

    def keep(self, connection: socket.socket) -> socket.socket:
        self._open.append(connection)
        return connection

    def _accept(self) -> None:
        number = 0
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            self.keep(client)
            thread = threading.Thread(target=self.serve, args=(number, client))
            self._threads.append(thread)
            thread.start()
            number += 1

    @staticmethod
    def _hang_up(connection: socket.socket) -> None:
        try:
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            return


class BlackHole(Listener):
    """Accepts and never says a word."""

    def serve(self, number: int, client: socket.socket) -> None:
        while receive(client):
            pass


class DelayProxy(Listener):
    """Passes on what the server behind it says, `delay_s` later."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self._port = port
        self.delay_s = 0.0

    def serve(self, number: int, client: socket.socket) -> None:
        server = self.keep(socket.create_connection(("127.0.0.1", self._port)))
        back = threading.Thread(target=self._pass_on, args=(server, client, True))
        back.start()
        self._pass_on(client, server, False)
        back.join()

    def _pass_on(self, source: socket.socket, target: socket.socket, is_delayed: bool) -> None:
        while data := receive(source):
            if is_delayed:
                time.sleep(self.delay_s)
            try:
                target.sendall(data)
            except OSError:
                break
        self._hang_up(target)


class ScriptedServer(Listener):
    """Answers commands with what a function of connection number and command says."""

    def __init__(self, answer: Callable[[int, Command], bytes]) -> None:
        super().__init__()
        self._answer = answer
        self.commands: list[tuple[int, Command]] = []

    def serve(self, number: int, client: socket.socket) -> None:
        reader = hiredis.Reader()
        while data := receive(client):
            reader.feed(data)
            while (command := reader.gets()) is not False:
                self.commands.append((number, command))
                is_setup = command[0] == b"CLIENT"
                client.sendall(b"+OK\r\n" if is_setup else self._answer(number, command))


def receive(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65536)
    except OSError:
        return b""
