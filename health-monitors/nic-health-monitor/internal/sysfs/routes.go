package sysfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// routesBytes bounds a file of routes; what is behind it is not looked at.
const routesBytes = 4 << 20

// maxUppers bounds how many interfaces may stand on one another: a VLAN on a
// bond in a bridge are three.
const maxUppers = 8

// routed are the interfaces that have a default route. It is an error if they cannot be
// read: a card of the node's own would be watched.
func (t *Tree) routed() (map[string]bool, error) {
	out := map[string]bool{}
	if t.Routes == "" || t.Include != nil {
		return out, nil
	}
	four, err := routes(filepath.Join(t.Routes, "route"))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(four) {
		if f := strings.Fields(line); len(f) > 7 && f[1] == "00000000" && f[7] == "00000000" {
			out[f[0]] = true
		}
	}
	six, err := routes(filepath.Join(t.Routes, "ipv6_route"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for line := range strings.Lines(six) {
		if f := strings.Fields(line); len(f) == 10 && strings.Trim(f[0], "0") == "" && f[1] == "00" && f[9] != "lo" {
			out[f[9]] = true
		}
	}
	return out, nil
}

func routes(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("reading routes: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, routesBytes))
	if err != nil {
		return "", fmt.Errorf("reading routes: %w", err)
	}
	return string(data), nil
}

// netdevs are the network interfaces of a card.
func (t *Tree) netdevs(card string) []string {
	names, err := list(filepath.Join(t.device(card), "device/net"))
	if err != nil {
		return nil
	}
	return names
}

// carries reports whether an interface, or one that stands on it, is one of those
// given.
func (t *Tree) carries(netdev string, own map[string]bool, depth int) bool {
	if own[netdev] {
		return true
	}
	entries, err := list(filepath.Join(t.Root, "class/net", netdev))
	if err != nil || depth >= maxUppers {
		return false
	}
	for _, e := range entries {
		if upper, ok := strings.CutPrefix(e, "upper_"); ok && t.carries(upper, own, depth+1) {
			return true
		}
	}
	return false
}
