"""The loop over time of LSTM, GRU and RNN layers."""
