"""What may leave a site: policy, disclosure rules, budget, ledger and what is known say yes, or refuse."""
