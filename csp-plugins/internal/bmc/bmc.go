// Package bmc is the provider of machines without a cloud: each is reached
// through its baseboard management controller, and belongs to the Node that the
// plugin's configuration names.
//
// A machine is asked to reset only when its BMC shows that it is the Node's. A Driver
// decides what to send to a BMC, and in which protocol.
package bmc

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	"github.com/nvidia/nvsentinel/csp-plugins/internal/cloud"
	"github.com/nvidia/nvsentinel/data-models/fault"
	"github.com/nvidia/nvsentinel/data-models/record"
)

// Power is what a BMC reports about the power of its machine.
type Power string

// Powers.
const (
	On       Power = "On"
	Off      Power = "Off"
	Changing Power = "Changing"
	// Unknown: the BMC does not report the power.
	Unknown Power = ""
)

// Facts are what a BMC reports about its machine.
type Facts struct {
	// UUID is that of the system; empty if the BMC knows none. It may stand in
	// another byte order than the operating system shows it.
	UUID  string
	Power Power
	// LastReset is when the machine was last reset, as the BMC writes it; empty if
	// it does not report that.
	LastReset string
}

// Driver speaks to BMCs in one protocol. Its errors are answers to the janitor:
// gRPC statuses with the meaning that csp_plugin.proto gives them.
type Driver interface {
	// Inspect asks a BMC under its credentials, and changes nothing.
	Inspect(ctx context.Context, machine string) (Facts, error)
	// Reset returns when the BMC took the request, which it is sent once at most.
	// Force does not wait for the operating system.
	Reset(ctx context.Context, machine string, force bool) error
}

// inspectTimeout bounds one look, and the wait for one's turn; resetLimit bounds one
// reset with the looks that it needs. A look and a reset are within the janitor's
// own limit of a call (30 s).
const (
	inspectTimeout = 8 * time.Second
	resetLimit     = 20 * time.Second
)

// Provider is the provider of the machines of a configuration.
type Provider struct {
	driver  Driver
	entries map[string]Entry // by machine
	// turns let one call at a time speak to a BMC: many can do no more.
	turns map[string]chan struct{}
}

var _ cloud.Hardware = (*Provider)(nil)

// New makes the provider of entries that were validated.
func New(entries []Entry, driver Driver) *Provider {
	p := &Provider{driver: driver, entries: map[string]Entry{}, turns: map[string]chan struct{}{}}
	for _, e := range entries {
		p.entries[e.Machine()] = e
		p.turns[e.Machine()] = make(chan struct{}, 1)
	}
	return p
}

// Machines names all machines, in order.
func (p *Provider) Machines() []string {
	names := make([]string, 0, len(p.entries))
	for name := range p.entries {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Machine finds the machine of a Node in the configuration, by the Node's name alone.
func (p *Provider) Machine(node *corev1.Node) (string, error) {
	if e, named := p.entries[nodePrefix+node.Name]; named {
		return e.Machine(), nil
	}
	return "", status.Errorf(codes.FailedPrecondition, "node %q has no BMC: add a [[bmc]] with node = %q to the plugin configuration", node.Name, node.Name)
}

// Rivals are two Nodes that show one system UUID, as far as that matters.
func (p *Provider) Rivals(one, other *corev1.Node) bool {
	shown := one.Status.NodeInfo.SystemUUID
	return !p.entries[nodePrefix+one.Name].SkipUUIDCheck && own(shown) && sameUUID(shown, other.Status.NodeInfo.SystemUUID)
}

// Confirmed reports whether the BMC that the configuration gives a Node knows the system
// UUID that the Node shows. One without a BMC, or whose UUID is not checked, proves
// nothing by what it shows.
func (p *Provider) Confirmed(ctx context.Context, node *corev1.Node) bool {
	machine, err := p.Machine(node)
	if err != nil || p.entries[machine].SkipUUIDCheck {
		return false
	}
	_, err = p.Examine(ctx, machine, node)
	return err == nil
}

// Examine compares the system UUID that the BMC knows with the one that the
// Node's kernel shows. The mark is the time of the last reset.
func (p *Provider) Examine(ctx context.Context, machine string, node *corev1.Node) (string, error) {
	facts, err := p.inspect(ctx, machine)
	if err != nil {
		return "", err
	}
	if p.entries[machine].SkipUUIDCheck {
		return facts.LastReset, nil
	}
	shown := node.Status.NodeInfo.SystemUUID
	switch {
	case !own(shown):
		return "", status.Errorf(codes.FailedPrecondition, "node %q has the system UUID %q, which is not unique, so that %s cannot be verified as its machine (set skipUUIDCheck to skip the check)", node.Name, shown, machine)
	case !own(facts.UUID) && facts.Power != On:
		// The machine's firmware has not sent the UUID to its BMC yet.
		return "", status.Errorf(codes.Aborted, "the BMC of %s reports the system UUID %q while its machine is not on, retrying until the machine is on", machine, facts.UUID)
	case !own(facts.UUID):
		return "", status.Errorf(codes.FailedPrecondition, "the BMC of %s reports the system UUID %q, which is not unique, so that it cannot be verified as the machine of node %q (set skipUUIDCheck to skip the check)", machine, facts.UUID, node.Name)
	case !sameUUID(shown, facts.UUID):
		return "", status.Errorf(codes.FailedPrecondition, "the BMC of %s reports the system UUID %s and node %q has %s, so it is another machine: correct the [[bmc]]", machine, facts.UUID, node.Name, shown)
	}
	return facts.LastReset, nil
}

// State asks for the power. It is Unimplemented if the BMC does not report it.
func (p *Provider) State(ctx context.Context, machine string) (cloud.State, error) {
	facts, err := p.inspect(ctx, machine)
	switch {
	case err != nil:
		return "", err
	case facts.Power == Unknown:
		return "", status.Errorf(codes.Unimplemented, "the BMC of %s does not report the power state of its machine", machine)
	case facts.Power == On:
		return cloud.Up, nil
	}
	return cloud.NotUp, nil
}

// Reboot resets the machine.
func (p *Provider) Reboot(ctx context.Context, machine string, force bool) error {
	return p.inTurn(ctx, machine, resetLimit, func(ctx context.Context) error { return p.driver.Reset(ctx, machine, force) })
}

// Identity is not asked of Hardware.
func (*Provider) Identity(context.Context, string) (cloud.Identity, error) {
	return cloud.Identity{}, status.Error(codes.Unimplemented, "BMCs do not provide names")
}

// Canonical is not asked of Hardware.
func (*Provider) Canonical(machine string) (string, error) { return machine, nil }

// Terminate is not asked of Hardware.
func (*Provider) Terminate(context.Context, string, bool) error {
	return status.Error(codes.Unimplemented, "machines behind a BMC cannot be replaced")
}

func (p *Provider) inspect(ctx context.Context, machine string) (facts Facts, err error) {
	err = p.inTurn(ctx, machine, inspectTimeout, func(ctx context.Context) error {
		facts, err = p.driver.Inspect(ctx, machine)
		return err
	})
	return facts, err
}

// inTurn runs one call to a BMC. What waits in vain has done nothing.
func (p *Provider) inTurn(ctx context.Context, machine string, limit time.Duration, call func(context.Context) error) error {
	turn, known := p.turns[machine]
	if !known {
		// Not NOT_FOUND: a gap in the configuration proves nothing about the machine.
		return status.Errorf(codes.FailedPrecondition, "the plugin configuration has no [[bmc]] of %s", machine)
	}
	wait, over := context.WithTimeout(ctx, inspectTimeout)
	defer over()
	select {
	case turn <- struct{}{}:
	case <-wait.Done():
		return status.Errorf(codes.Aborted, "other calls to the BMC of %s are still in progress, retry", machine)
	}
	defer func() { <-turn }()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return call(ctx)
}

// own reports whether a system UUID can be that of one machine alone.
func own(uuid string) bool {
	if _, ok := parseUUID(uuid); !ok {
		return false
	}
	return fault.Machine(record.NodeIdentity{SystemUUID: uuid}) != ""
}

// The 16 bytes of a system UUID are written in several orders. SMBIOS keeps the
// first three fields with their lowest byte first, and the texts of Linux and of
// Redfish have turned them (SMBIOS reference specification, 7.2.1); firmware of
// before SMBIOS 2.6 has not. IPMI sends all 16 bytes lowest first (IPMI 2.0,
// table 20-10), and many BMCs send them in the order of SMBIOS or of the text
// instead. An order is a permutation: two texts that agree in one of them are 16
// equal bytes, which no two machines with UUIDs of their own have.

// sameUUID reports whether two texts are one UUID in any of the known orders.
func sameUUID(one, other string) bool {
	a, ok := parseUUID(one)
	b, also := parseUUID(other)
	if !ok || !also {
		return false
	}
	return slices.Contains([]uuid.UUID{b, turnFields(b), reverse(b), turnFields(reverse(b)), reverse(turnFields(b))}, a)
}

// parseUUID reads 32 hexadecimal digits, with or without hyphens.
func parseUUID(text string) (uuid.UUID, bool) {
	if len(text) != 36 && len(text) != 32 {
		return uuid.UUID{}, false
	}
	id, err := uuid.Parse(text)
	return id, err == nil
}

// turnFields reverses the bytes of each of the first three fields.
func turnFields(u uuid.UUID) uuid.UUID {
	slices.Reverse(u[0:4])
	slices.Reverse(u[4:6])
	slices.Reverse(u[6:8])
	return u
}

func reverse(u uuid.UUID) uuid.UUID {
	slices.Reverse(u[:])
	return u
}

// MaxText bounds what is reported of an output of a tool or an answer of a BMC, in bytes.
const MaxText = 512

// Shorten is the begin of such a text, in one line.
func Shorten(text string) string {
	text = strings.ToValidUTF8(strings.Join(strings.Fields(text), " "), "?")
	if len(text) > MaxText {
		text = strings.ToValidUTF8(text[:MaxText], "") + "..."
	}
	return text
}
