"""What a run says about itself: its log, its meter, its progress, its tables, and the machine it ran on."""
