"""The service of `lstr watch`: cameras for weeks, with stored events, a page and notifications."""
