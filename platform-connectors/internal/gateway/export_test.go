package gateway

// Forgive forgets refused tokens, for tests whose attackers share an address.
func (c *Callers) Forgive() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.peers = nil
}

// Busy is how many calls of a node are under way.
func (g *Gateway) Busy(node string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.busy[node]
}
