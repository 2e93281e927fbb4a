package oci

import (
	"context"
	"net/http"
)

// The SDK runs each request in a goroutine of its own, and when a context ends it
// returns, while that goroutine still writes what it returns. So it is shown contexts
// without an end, and what sends the request heeds the end.

type ending struct{}

// shown is a context for the SDK.
func shown(ctx context.Context) context.Context {
	return context.WithValue(context.WithoutCancel(ctx), ending{}, ctx)
}

// dispatcher sends requests, each within the context that was given.
type dispatcher struct{ client *http.Client }

// Do sends a request.
func (d dispatcher) Do(r *http.Request) (*http.Response, error) {
	if ctx, ok := r.Context().Value(ending{}).(context.Context); ok {
		r = r.WithContext(ctx)
	}
	return d.client.Do(r)
}
