package scale

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
)

// beside is what takes memory and is no part of the suite's control plane.
func (u *suite) beside() ([]figure, error) {
	server, etcd, err := u.clusterProcesses()
	if err != nil {
		return nil, err
	}
	database, err := u.ofDatabase()
	if err != nil {
		return nil, err
	}
	out := []figure{{
		nodes: u.nodes, name: "beside: PostgreSQL, memory", value: bytesOf(database.bytes),
		note: fmt.Sprintf("the server and its %d backends and helpers, shared pages once", database.processes-1),
	}}
	for name, pid := range map[string]int{"beside: kube-apiserver, memory": server, "beside: etcd, memory": etcd} {
		now, err := usageOf(pid)
		if err != nil {
			return out, err
		}
		out = append(out, figure{nodes: u.nodes, name: name, value: bytesOf(now.resident), note: "resident"})
	}
	slices.SortFunc(out, func(a, b figure) int { return len(b.name) - len(a.name) })
	return out, nil
}

// clusterProcesses are those of the API server and of etcd.
func (s *site) clusterProcesses() (server, etcd int, err error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return 0, 0, fmt.Errorf("listing processes: %w", err)
	}
	for _, p := range all {
		stat, err := p.Stat()
		if err != nil || stat.PPID != os.Getpid() {
			continue
		}
		line, err := p.CmdLine()
		if err != nil || !strings.Contains(strings.Join(line, " "), s.cluster.Dir()) {
			continue
		}
		switch filepath.Base(line[0]) {
		case "kube-apiserver":
			server = p.PID
		case "etcd":
			etcd = p.PID
		}
	}
	if server == 0 || etcd == 0 {
		return 0, 0, errors.New("the API server or etcd is not among the processes")
	}
	return server, etcd, nil
}

// ofDatabase is PostgreSQL with its backends.
func (s *site) ofDatabase() (family, error) {
	text, err := os.ReadFile(filepath.Join(s.dir, "postgresql", "data", "postmaster.pid"))
	if err != nil {
		return family{}, fmt.Errorf("finding PostgreSQL's process: %w", err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		return family{}, fmt.Errorf("finding PostgreSQL's process: %w", err)
	}
	return familyOf(pid)
}
