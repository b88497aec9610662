"""Times Whisper's transcription by relaxd and by CTranslate2, which reads the same weights."""
