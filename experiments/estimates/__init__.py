"""How good estimates of run times are on GenTD26, rung by rung, beside naive ones."""
