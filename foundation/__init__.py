"""What every part stands on: data contracts, errors, events, atomic files. Imports no other package of the project."""
