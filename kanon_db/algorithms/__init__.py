"""Pure algorithms: numpy in, frozen dataclasses of numpy out; no SQL, no files, no clock."""
