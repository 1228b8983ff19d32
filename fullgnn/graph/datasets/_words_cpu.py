"""Compiled loops over the bytes of a text: its lines, its words, and integers. Importing this module imports numba."""

# mypy: allow-untyped-defs, allow-incomplete-defs, no-check-untyped-defs

import numpy as np

from fullgnn.kernels.support.vectors import compiled

NO_INTEGER, TOO_LARGE = 1, 2


@compiled()
def split(text, ends_word, begins_comment, keeps_empty, start, end, first, line, counts):
    """Find the words of each line.

    Args:
        text: (num_bytes,) uint8; a line ends with a line feed, a carriage return, or both.
        ends_word: (256,) bool, the bytes between two words, around which blanks and tabs do not count. Where blanks are
            among them, as many as there are stand between two words; otherwise a word may be empty.
        begins_comment: (256,) bool, the bytes with which a line begins that is skipped.
        keeps_empty: whether a line without a word is a row.
        start, end: (num_bytes + 1,) int64, filled with the places of the words.
        first: (num_bytes + 2,) int64, filled with the first word of each row, and the number of words.
        line: (num_bytes + 1,) int64, filled with the line of each row, from 0.
        counts: (3,) int64, filled with the numbers of words, rows and lines.
    """
    words = 0
    rows = 0
    lines = 0
    place = 0
    size = len(text)
    while place < size:
        stop = place
        while stop < size and text[stop] != 10 and text[stop] != 13:
            stop += 1
        begin = place
        while begin < stop and (text[begin] == 32 or text[begin] == 9):
            begin += 1
        is_empty = begin == stop
        if keeps_empty if is_empty else not begins_comment[text[begin]]:
            first[rows] = words
            line[rows] = lines
            rows += 1
        if not is_empty and not begins_comment[text[begin]]:
            begin = place
            while begin <= stop:
                after = begin
                while after < stop and not ends_word[text[after]]:
                    after += 1
                left = begin
                right = after
                while left < right and (text[left] == 32 or text[left] == 9):
                    left += 1
                while right > left and (text[right - 1] == 32 or text[right - 1] == 9):
                    right -= 1
                if left < right or not ends_word[32]:
                    start[words] = left
                    end[words] = right
                    words += 1
                begin = after + 1
        lines += 1
        place = stop + 1
        if stop + 1 < size and text[stop] == 13 and text[stop + 1] == 10:
            place += 1
    first[rows] = words
    counts[0] = words
    counts[1] = rows
    counts[2] = lines


@compiled()
def integers(text, start, end, values, wrong):
    """Read each word as an integer.

    Args:
        text, start, end: as ``split`` fills them.
        values: (num_words,) int64, filled.
        wrong: (2,) int64, filled with the first word that is none, and why (``NO_INTEGER``, ``TOO_LARGE``); else kept.
    """
    least = np.int64(-9223372036854775808)
    for word in range(len(start)):
        place = start[word]
        stop = end[word]
        negative = place < stop and text[place] == 45
        if place < stop and (text[place] == 45 or text[place] == 43):
            place += 1
        if place == stop:
            wrong[0] = word
            wrong[1] = NO_INTEGER
            return
        value = np.int64(0)  # of the other sign: there is one more negative number
        too_large = False
        while place < stop:
            digit = np.int64(text[place]) - 48
            if digit < 0 or digit > 9:
                wrong[0] = word
                wrong[1] = NO_INTEGER
                return
            if value < -922337203685477580 or (value == -922337203685477580 and digit > 8):
                too_large = True
            else:
                value = value * 10 - digit
            place += 1
        if too_large or (value == least and not negative):
            wrong[0] = word
            wrong[1] = TOO_LARGE
            return
        values[word] = value if negative else -value


@compiled()
def gather(text, start, end, places, utf8):
    """Write the words one after the other.

    Args:
        text, start, end: as ``split`` fills them.
        places: (num_words,) int64, where each word begins in ``utf8``.
        utf8: (num_bytes,) uint8, filled.
    """
    for word in range(len(start)):
        to = places[word]
        for place in range(start[word], end[word]):
            utf8[to] = text[place]
            to += 1
