package timeline

import "time"

// Brake is the emergency brake, as the API server shows it.
type Brake struct {
	// Read says that it was; Problem why not.
	Read    bool   `json:"read"`
	Problem string `json:"problem,omitempty"`
	// On says that nothing is cordoned, evicted, repaired or signalled.
	On bool `json:"on"`
	// Since is when it was switched last, By whom and Reason why, as far as that is
	// known; By is a tool's name where nobody said more.
	Since  time.Time `json:"since,omitzero"`
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

// brake is the line of the emergency brake, when it is on or could not be read,
// or off and asked for.
func (p *page) brake(b Brake, sources []Source, at time.Time, always bool) {
	switch {
	case !b.Read && !sources[1].Read: // why is said there
		p.line("%s", p.paint(Bad, "! emergency brake UNREAD"))
	case !b.Read:
		p.line("%s", p.paint(Bad, "! emergency brake UNREAD: "+brief(b.Problem)))
	case b.On:
		p.line("%s", p.paint(Bad, "! emergency brake ON"+p.switched(b, at)))
		p.line("  nothing is cordoned, evicted, repaired or signalled; recoveries and releases go on (docs/brake.md)")
	case always:
		p.line("  emergency brake OFF%s", p.switched(b, at))
	}
}

func (p *page) switched(b Brake, at time.Time) string {
	text := ""
	if !b.Since.IsZero() {
		text = " since " + p.moment(b.Since) + " (" + span(at.Sub(b.Since)) + ")"
	}
	if b.By != "" {
		text += ", switched by " + b.By
	}
	if b.Reason != "" {
		text += ": " + b.Reason
	}
	return brief(text)
}
