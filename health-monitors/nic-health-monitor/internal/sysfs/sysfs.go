// Package sysfs reads what the kernel reports about the node's network cards.
package sysfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nvidia/nvsentinel/health-monitors/nic-health-monitor/evaluation"
)

// Bounds of one look. A node has some ten cards with one or two ports each.
const (
	maxCards  = 256
	maxPorts  = 16
	fileBytes = 4 << 10
)

// Tree reads cards from sysfs.
type Tree struct {
	// Root is where sysfs is mounted, "/sys".
	Root string
	// Counters are the names of the counters to read.
	Counters []string
	// Include, where set, names the cards that are watched; Exclude those that are
	// not.
	Include, Exclude *regexp.Regexp
	// Routes is a folder with the kernel's files of routes, "/proc/1/net": cards
	// that carry a default route are the node's own and are not watched, unless
	// Include names them. Empty: none is.
	Routes string

	own map[string]bool // cards that carried a default route once
}

// Stats counts what a look could not read.
type Stats struct{ Unreadable int }

// errMoving: what was read of a card that goes meanwhile is no whole card.
var errMoving = errors.New("listing cards: a card was added or removed during the read, retrying")

// Read reads every watched card. A file that cannot be read makes a port or a
// counter unknown; a folder that cannot be listed is an error, for a card that
// is missing in a list would be taken for gone, and so is an address that cannot
// be read, for the card would be taken for another one.
func (t *Tree) Read(boot string, now time.Time) (evaluation.Reading, Stats, error) {
	r, stats := evaluation.Reading{At: now, Boot: boot, Drivers: map[string]bool{}}, Stats{}
	if _, err := os.Stat(filepath.Join(t.Root, "class")); err != nil {
		return r, stats, fmt.Errorf("reading sysfs: %w", err)
	}
	names, err := t.names()
	if err != nil {
		return r, stats, err
	}
	own, err := t.routed()
	if err != nil {
		return r, stats, err
	}
	for _, name := range names {
		if err := t.take(&r, &stats, name, own); err != nil {
			return r, stats, err
		}
	}
	openable, err := t.charDevices()
	r.CharDevices = err == nil
	for i, d := range r.Devices {
		r.Devices[i].CharDevice = openable[d.Name]
	}
	if after, err := t.names(); err != nil || !slices.Equal(after, names) {
		return r, stats, errors.Join(errMoving, err)
	}
	return r, stats, nil
}

// take reads one card into the reading.
func (t *Tree) take(r *evaluation.Reading, stats *Stats, name string, own map[string]bool) error {
	location, driver, err := t.location(name)
	if err != nil {
		return err
	}
	if driver != "" {
		r.Drivers[driver] = true
	}
	if !t.watched(name, own) {
		r.Unwatched = append(r.Unwatched, location)
		return nil
	}
	if len(r.Devices) == maxCards {
		return fmt.Errorf("listing cards: there are more than %d", maxCards)
	}
	d := t.card(name, stats)
	d.Location, d.Driver = location, driver
	r.Devices = append(r.Devices, d)
	return nil
}

// names lists the cards.
func (t *Tree) names() ([]string, error) { return list(filepath.Join(t.Root, "class/infiniband")) }

// watched reports whether the monitor watches a card.
func (t *Tree) watched(name string, own map[string]bool) bool {
	if strings.ContainsAny(name, "|\n") {
		return false
	}
	if _, err := os.Stat(filepath.Join(t.device(name), "device/physfn")); err == nil {
		return false // a virtual function shares the fate of its card
	}
	if t.Exclude != nil && t.Exclude.MatchString(name) {
		return false
	}
	if t.Include != nil {
		return t.Include.MatchString(name)
	}
	if t.own == nil {
		t.own = map[string]bool{}
	}
	for _, netdev := range t.netdevs(name) {
		if t.carries(netdev, own, 0) {
			t.own[name] = true // and stays so when its link, and the route with it, goes
		}
	}
	return !t.own[name]
}

func (t *Tree) device(name string) string { return filepath.Join(t.Root, "class/infiniband", name) }

func (t *Tree) card(name string, stats *Stats) evaluation.Device {
	dir := t.device(name)
	d := evaluation.Device{
		Name: name, GUID: text(filepath.Join(dir, "node_guid")),
		Model: text(filepath.Join(dir, "hca_type")) + " " + text(filepath.Join(dir, "board_id")),
	}
	numbers, err := list(filepath.Join(dir, "ports"))
	if err != nil {
		stats.Unreadable++ // one broken card hides no other
	}
	slices.SortFunc(numbers, func(a, b string) int { return number(a) - number(b) })
	for _, n := range numbers[:min(len(numbers), maxPorts)] {
		if number(n) > 0 {
			d.Ports = append(d.Ports, t.port(name, n, stats))
		}
	}
	return d
}

// location is the PCI address of a card, or its name where it has none, and driver
// that of its device.
func (t *Tree) location(name string) (location, driver string, err error) {
	uevent, err := read(filepath.Join(t.device(name), "device/uevent"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", "", fmt.Errorf("reading the address of %s: %w", name, err)
	}
	location = name
	for line := range strings.Lines(uevent) {
		switch key, value, _ := strings.Cut(strings.TrimSpace(line), "="); {
		case key == "PCI_SLOT_NAME" && !strings.Contains(value, "|"):
			location = value
		case key == "DRIVER":
			driver = value
		}
	}
	return location, driver, nil
}

func (t *Tree) port(card, n string, stats *Stats) evaluation.Port {
	dir := filepath.Join(t.device(card), "ports", n)
	p := evaluation.Port{Number: n, Layer: evaluation.InfiniBand, Counters: map[string]uint64{}}
	if text(filepath.Join(dir, "link_layer")) == string(evaluation.Ethernet) {
		p.Layer = evaluation.Ethernet
	}
	p.State = state(text(filepath.Join(dir, "state")), text(filepath.Join(dir, "phys_state")))
	if p.State == evaluation.Unreadable {
		stats.Unreadable++
	}
	for _, name := range t.Counters {
		if value, ok := t.counter(card, n, name); ok {
			p.Counters[name] = value
		}
	}
	return p
}

// carrierChanges is a counter of the network interface and not of the port.
const carrierChanges = "carrier_changes"

func (t *Tree) counter(card, port, name string) (uint64, bool) {
	dir := filepath.Join(t.device(card), "ports", port)
	paths := []string{filepath.Join(dir, "counters", name), filepath.Join(dir, "hw_counters", name)}
	if name == carrierChanges {
		paths = nil
		for _, netdev := range t.netdevs(card) {
			own := filepath.Join(t.Root, "class/net", netdev)
			if number(text(filepath.Join(own, "dev_port"))) == number(port)-1 && !strings.Contains(text(filepath.Join(own, "phys_port_name")), "vf") {
				paths = append(paths, filepath.Join(own, carrierChanges))
				break
			}
		}
	}
	for _, path := range paths {
		if value, err := strconv.ParseUint(text(path), 10, 64); err == nil {
			return value, true
		}
	}
	return 0, false
}

// state reads "4: ACTIVE" and "3: Disabled".
func state(logical, physical string) evaluation.State {
	if number, _, ok := strings.Cut(logical, ":"); ok {
		switch number {
		case "1", "0":
			if strings.HasPrefix(physical, "3:") {
				return evaluation.Disabled
			}
			return evaluation.Down
		case "2", "3", "5":
			return evaluation.Between
		case "4":
			return evaluation.Active
		}
	}
	return evaluation.Unreadable
}

// charDevices are the cards that programs can open.
func (t *Tree) charDevices() (map[string]bool, error) {
	dir := filepath.Join(t.Root, "class/infiniband_verbs")
	if _, err := os.Stat(dir); err != nil {
		return nil, err // without the module, nothing is known about a card
	}
	names, err := list(dir)
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, n := range names {
		if !strings.HasPrefix(n, "uverbs") {
			continue
		}
		card, err := read(filepath.Join(dir, n, "ibdev"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err // it is there, and may be that of any card
		}
		out[card] = true
	}
	return out, nil
}

// list names what is in a folder, sorted; a folder that is not there is empty.
func list(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", dir, err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out, nil
}

// read is a small file without the space around it.
func read(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, fileBytes))
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(data)), nil
}

// text is what read reads, empty when it cannot.
func text(path string) string {
	s, err := read(path)
	if err != nil {
		return ""
	}
	return s
}

// number is a decimal number, 0 for anything else.
func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return n
}
