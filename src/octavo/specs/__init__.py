"""What a model is, as values: frozen, whole when made, no array library. Only a backend gives bytes a meaning as numbers."""
