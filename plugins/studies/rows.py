"""Rows of measurements in CSV files: written one by one, read back, so that a study goes on where it stopped."""

from __future__ import annotations

import csv
import os
import subprocess
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from verifolio import InputError

from .study import Key, Measurement, Place, Record, Study, Tables

WHEN = ("date", "commit", "load")  # of every row: the day, the code, and how busy the machine was


@dataclass(frozen=True)
class Rows:
    """The rows of one study in a folder."""

    folder: Path
    study: str

    def path(self, name: str) -> Path:
        return self.folder / f"{self.study}-{name}.csv"

    def read(self, measurement: Measurement) -> list[Record]:
        """What is there; a file of other columns is refused."""
        path = self.path(measurement.name)
        if not path.is_file():
            return []
        with path.open(newline="", encoding="utf-8") as stream:
            reader = csv.DictReader(stream)
            wanted = columns(measurement)
            if tuple(reader.fieldnames or ()) != wanted:
                got = ", ".join(reader.fieldnames or ()) or "none"
                raise InputError(
                    f"{path}:1", f"the columns {', '.join(wanted)}", got, "move the file away to measure anew"
                )
            return [checked(path, number, row) for number, row in enumerate(reader, 2)]

    def tables(self, study: Study) -> Tables:
        """Everything that is there."""
        return Tables({name: self.read(several[0]) for name, several in study.measurements.items()})

    def missing(self, measurement: Measurement, place: Place) -> list[Key]:
        """The rows that should be there and are not."""
        known = {tuple(r[k] for k in measurement.key) for r in self.read(measurement)}
        todo = [key for key in measurement.wanted(place.size) if key not in known]
        return [key for key in todo if not place.only or {measurement.name, *key} & set(place.only)]

    def fill(self, measurement: Measurement, place: Place, seconds: float) -> int:
        """Measure what is missing, begin nothing after so long; gives how many rows are still missing."""
        todo = self.missing(measurement, place)
        if not todo or seconds <= 0:
            return len(todo)
        end = time.monotonic() + seconds
        self.folder.mkdir(parents=True, exist_ok=True)
        done = 0
        for group in measurement.groups(todo):
            for row in measurement.measure(group, place):
                self.append(measurement, row)
                done += 1
                where = " ".join(row[k] for k in measurement.key)
                place.say(f"{measurement.name}: {done} of {len(todo)}: {where}")
            if time.monotonic() >= end:
                break
        return len(todo) - done

    def append(self, measurement: Measurement, row: Record) -> None:
        """One more row, on the disk before the next is measured."""
        path, names = self.path(measurement.name), columns(measurement)
        whole = {**row, **now()}
        fresh = not path.is_file()
        with path.open("a", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, names, lineterminator="\n")
            if fresh:
                writer.writeheader()
            writer.writerow(whole)
            stream.flush()
            os.fsync(stream.fileno())


def columns(measurement: Measurement) -> tuple[str, ...]:
    """All columns of its file."""
    return (*measurement.key, *measurement.columns, *WHEN)


def checked(path: Path, number: int, row: dict[str, str]) -> Record:
    """A row that is whole: a run that was killed may have left half a line at the end."""
    if None in row or None in row.values():
        raise InputError(f"{path}:{number}", "a value for every column", "fewer or more", "delete the line")
    return row


def now() -> Record:
    """The columns `WHEN`."""
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": commit(),
        "load": f"{os.getloadavg()[0]:.1f}",
    }


@cache
def commit() -> str:
    """The code that measures: a commit of its repository, with a + if files differ from it; or a version."""
    import verifolio

    here = Path(__file__).resolve().parent

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(here), *words], capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    found = git("rev-parse", "--short=7", "HEAD")
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ":/core", ":/plugins")
    return f"{found}{'+' if changed else ''}" if found else f"version {verifolio.__version__}"
