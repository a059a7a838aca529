"""`spinup version`: the version of this library."""

from spinup.version import get_version


def main(argv=None):
    print(get_version())
