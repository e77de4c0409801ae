"""A model file whose feature networks compute in int8."""
