"""How a better model reaches users and a bad one never stays: the gate, the canary, and the way back."""
