// Command rack-plugin is an example of a provider plugin: it reboots machines
// through the HTTP API of a rack controller. The controller remembers the ids of
// the requests it took, so the plugin needs no memory of its own.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"log"
	"net/http"
	"net/url"
	"os/signal"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/nvidia/nvsentinel/janitor/protos/plugin"
	v1 "github.com/nvidia/nvsentinel/janitor/protos/v1"
)

func main() {
	listen := flag.String("listen", ":9090", "host:port that the janitor calls")
	controller := flag.String("controller", "http://rack-controller", "URL of the rack controller")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := plugin.ListenAndServe(ctx, *listen, rack{url: *controller}, plugin.Options{}); err != nil {
		log.Fatal(err)
	}
}

type rack struct {
	v1.UnimplementedCSPPluginServiceServer
	url string
}

func (r rack) SendRebootSignal(ctx context.Context, q *v1.SendRebootSignalRequest) (*v1.SendRebootSignalResponse, error) {
	a, err := r.ask(ctx, http.MethodPost, q.GetNodeName(), q.GetIdempotencyKey())
	return &v1.SendRebootSignalResponse{RequestId: a.Request}, err
}

func (r rack) IsNodeReady(ctx context.Context, q *v1.IsNodeReadyRequest) (*v1.IsNodeReadyResponse, error) {
	a, err := r.ask(ctx, http.MethodGet, q.GetNodeName(), "")
	return &v1.IsNodeReadyResponse{IsReady: a.On}, err
}

func (r rack) SendTerminateSignal(ctx context.Context, q *v1.SendTerminateSignalRequest) (*v1.SendTerminateSignalResponse, error) {
	a, err := r.ask(ctx, http.MethodDelete, q.GetNodeName(), q.GetIdempotencyKey())
	return &v1.SendTerminateSignalResponse{RequestId: a.Request}, err
}

// answer is what the rack controller says about a machine.
type answer struct {
	Request string `json:"request"`
	On      bool   `json:"on"`
}

// ask calls the rack controller; its error is the answer to the janitor.
func (r rack) ask(ctx context.Context, method, machine, id string) (a answer, _ error) {
	if machine == "" {
		return a, status.Error(codes.InvalidArgument, "node_name is empty")
	}
	req, err := http.NewRequestWithContext(ctx, method, r.url+"/machines/"+url.PathEscape(machine)+"?id="+url.QueryEscape(id), http.NoBody)
	if err != nil {
		return a, status.Error(codes.InvalidArgument, err.Error())
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return a, status.Error(codes.Unavailable, err.Error()) // it may have been done
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
		if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
			return a, status.Error(codes.Unknown, err.Error())
		}
		return a, nil
	case http.StatusNotFound:
		return a, status.Errorf(codes.NotFound, "the rack has no machine %q", machine)
	case http.StatusConflict:
		return a, status.Errorf(codes.InvalidArgument, "id %q was used for another machine", id)
	case http.StatusTooManyRequests:
		return a, plugin.RetryLater(10*time.Second, "the rack controller is busy")
	}
	return a, status.Errorf(codes.Unknown, "the rack controller answered %s", resp.Status)
}
