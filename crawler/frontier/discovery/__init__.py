"""New URLs: their entries on disk, parking, retiring."""
