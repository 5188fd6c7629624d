"""One module a store, found by itself: a new store is one new file here, or an entry point of another package.

A module of this package that is a store has a class with `store`, `kinds` and `options` (contract.Eraser), named in
its `ERASER`.
"""
