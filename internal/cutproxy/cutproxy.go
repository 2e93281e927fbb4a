// Package cutproxy is a TCP line that breaks on purpose: between a client and
// a server it holds back, or cuts at, the first message that contains a given
// text. Tests use it for connections that fail at the worst moment.
package cutproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
)

// Action is what happens to the awaited message.
type Action int

// Actions.
const (
	// Hold keeps the message back until Trap.Release.
	Hold Action = iota
	// CutBefore breaks the connection; the server never sees the message.
	CutBefore
	// CutAfter hands the message over and breaks the connection before the
	// client sees the answer.
	CutAfter
)

// Trap waits for one message from any client.
type Trap struct {
	texts   []string
	action  Action
	sprung  chan struct{}
	release chan struct{}
	once    sync.Once
}

// Sprung is closed when the message has come.
func (t *Trap) Sprung() <-chan struct{} { return t.sprung }

// Release lets a held message pass.
func (t *Trap) Release() { t.once.Do(func() { close(t.release) }) }

// Proxy is a running line.
type Proxy struct {
	dial     func(ctx context.Context) (net.Conn, error)
	listener net.Listener
	ctx      context.Context
	cancel   context.CancelFunc
	tasks    sync.WaitGroup

	mu    sync.Mutex
	trap  *Trap
	links map[*link]struct{}
}

// link is one connection of a client with its connection to the server.
type link struct {
	client, server net.Conn
	mu             sync.Mutex
	deaf           bool
}

func (l *link) cut() {
	// Closing twice or after a broken connection is no problem here.
	_ = l.client.Close()
	_ = l.server.Close()
}

// Start listens on a free local port and connects each client by dial.
func Start(dial func(ctx context.Context) (net.Conn, error)) (*Proxy, error) {
	ctx, cancel := context.WithCancel(context.Background())
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		cancel()
		return nil, fmt.Errorf("listening: %w", err)
	}
	p := &Proxy{dial: dial, listener: l, ctx: ctx, cancel: cancel, links: map[*link]struct{}{}}
	p.tasks.Go(p.accept)
	return p, nil
}

// Addr is where clients connect, host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Set arms a trap for the next message that contains text, or one of others; it
// replaces the trap before it.
func (p *Proxy) Set(text string, action Action, others ...string) *Trap {
	t := &Trap{texts: append(others, text), action: action, sprung: make(chan struct{}), release: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trap = t
	return t
}

// Cut breaks every connection; new ones are accepted.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.cut()
	}
}

// Close ends the line.
func (p *Proxy) Close() error {
	p.cancel()
	err := p.listener.Close()
	p.Cut()
	p.tasks.Wait()
	return err
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.tasks.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	server, err := p.dial(p.ctx)
	if err != nil {
		_ = client.Close()
		return
	}
	l := &link{client: client, server: server}
	p.mu.Lock()
	p.links[l] = struct{}{}
	if p.ctx.Err() != nil {
		l.cut() // Close may have cut the others already
	}
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { p.forward(l) })
	both.Go(func() { answer(l) })
	both.Wait()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

// forward carries the client's messages and springs the trap.
func (p *Proxy) forward(l *link) {
	defer l.cut()
	buf := make([]byte, 64<<10)
	for {
		n, err := l.client.Read(buf)
		if n > 0 && p.meet(l, buf[:n]) != nil {
			return
		}
		if err != nil {
			return
		}
	}
}

var errCut = errors.New("cut")

func (p *Proxy) meet(l *link, message []byte) error {
	p.mu.Lock()
	t := p.trap
	if t == nil || !slices.ContainsFunc(t.texts, func(text string) bool { return bytes.Contains(message, []byte(text)) }) {
		t = nil
	} else {
		p.trap = nil
	}
	p.mu.Unlock()
	if t != nil {
		if t.action == CutAfter {
			l.mu.Lock()
			l.deaf = true
			l.mu.Unlock()
		}
		close(t.sprung)
		switch t.action {
		case CutAfter:
		case CutBefore:
			return errCut
		case Hold:
			select {
			case <-t.release:
			case <-p.ctx.Done():
				return p.ctx.Err()
			}
		}
	}
	_, err := l.server.Write(message)
	return err
}

// answer carries the server's messages; a deaf link breaks at the first one.
func answer(l *link) {
	defer l.cut()
	buf := make([]byte, 64<<10)
	for {
		n, err := l.server.Read(buf)
		l.mu.Lock()
		deaf := l.deaf
		l.mu.Unlock()
		if deaf {
			return
		}
		if n > 0 {
			if _, err := l.client.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
