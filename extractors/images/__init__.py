"""Images as the networks take them: fitted, cut, crops averaged."""
