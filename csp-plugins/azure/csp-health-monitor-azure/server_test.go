package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	azfake "github.com/Azure/azure-sdk-for-go/sdk/azcore/fake"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	computefake "github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7/fake"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resourcegraph/armresourcegraph"
	graphfake "github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resourcegraph/armresourcegraph/fake"
)

// azureCloud is Azure behind the SDK's own fakes of Compute and of Resource Graph, with a log
// and faults before them. What it answers follows the published descriptions:
// https://learn.microsoft.com/en-us/rest/api/compute/virtual-machines/list-all
// https://learn.microsoft.com/en-us/rest/api/compute/virtual-machine-scale-set-vms/list
// https://learn.microsoft.com/en-us/rest/api/azureresourcegraph/resourcegraph/resources/resources
type azureCloud struct {
	mu       sync.Mutex
	machines []*armcompute.VirtualMachine
	sets     map[string][]*armcompute.VirtualMachineScaleSetVM // by GROUP/NAME
	rows     []any
	page     int                // items of a page
	faults   map[string][]fault // by operation and number of the call
	requests []string           // operation and number of every call that was not refused
}

// fault is what goes wrong with a call; without a status the answer is cut.
type fault int

func newCloud() *azureCloud {
	return &azureCloud{sets: map[string][]*armcompute.VirtualMachineScaleSetVM{}, page: 100, faults: map[string][]fault{}}
}

// connect makes a source of the SDK's own clients; they retry as always, but at once.
func connect(t testing.TB, c *azureCloud, change func(*CloudConfig)) *Source {
	t.Helper()
	config := CloudConfig{Subscription: "5ub"}
	change(&config)
	options := &arm.ClientOptions{DisableRPRegistration: true}
	options.Retry = policy.RetryOptions{RetryDelay: time.Microsecond, MaxRetryDelay: time.Microsecond}
	options.Transport = &transport{azureCloud: c,
		compute: computefake.NewServerFactoryTransport(&computefake.ServerFactory{
			VirtualMachinesServer:           computefake.VirtualMachinesServer{NewListAllPager: c.listAll, Get: c.get},
			VirtualMachineScaleSetVMsServer: computefake.VirtualMachineScaleSetVMsServer{NewListPager: c.listSet, Get: c.getInSet},
		}),
		graph: graphfake.NewServerTransport(&graphfake.Server{Resources: c.resources}),
	}
	source, err := As(config, &azfake.TokenCredential{}, options)
	if err != nil {
		t.Fatal(err)
	}
	return source
}

func fullAccess(*CloudConfig) {}

// transport keeps the log.
type transport struct {
	*azureCloud
	compute, graph policy.Transporter
}

func (t *transport) Do(r *http.Request) (*http.Response, error) {
	operation, to := "machines", t.compute
	switch {
	case strings.Contains(r.URL.Path, "/Microsoft.ResourceGraph/"):
		operation, to = "updates", t.graph
	case strings.Contains(r.URL.Path, "/virtualMachineScaleSets/"):
		operation = "set"
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	key := fmt.Sprintf("%s %d", operation, t.count(operation)+1)
	if list := t.faults[key]; len(list) > 0 {
		t.faults[key] = list[1:]
		return refuse(r, int(list[0])), nil
	}
	t.requests = append(t.requests, key)
	return to.Do(r)
}

// count is how many calls of an operation were answered.
func (c *azureCloud) count(operation string) int {
	n := 0
	for _, b := range c.requests {
		if strings.HasPrefix(b, operation+" ") {
			n++
		}
	}
	return n
}

func refuse(r *http.Request, status int) *http.Response {
	body := io.Reader(strings.NewReader(fmt.Sprintf(`{"error":{"code":"Code%d","message":"so it is"}}`, status)))
	if status == 0 {
		status, body = http.StatusOK, io.MultiReader(strings.NewReader(`{"value":[{"id":"/subscr`), broken{})
	}
	return &http.Response{StatusCode: status, Status: strconv.Itoa(status), Header: http.Header{}, Body: io.NopCloser(body), Request: r}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("the connection broke") }

func (c *azureCloud) listAll(o *armcompute.VirtualMachinesClientListAllOptions) (out azfake.PagerResponder[armcompute.VirtualMachinesClientListAllResponse]) {
	if o == nil || o.StatusOnly == nil || *o.StatusOnly != "true" {
		out.AddResponseError(http.StatusBadRequest, "no run-time status was asked for")
		return out
	}
	for some := range pages(c.machines, c.page) {
		out.AddPage(http.StatusOK, armcompute.VirtualMachinesClientListAllResponse{VirtualMachineListResult: armcompute.VirtualMachineListResult{Value: some}}, nil)
	}
	return out
}

func (c *azureCloud) listSet(group, name string, o *armcompute.VirtualMachineScaleSetVMsClientListOptions) (out azfake.PagerResponder[armcompute.VirtualMachineScaleSetVMsClientListResponse]) {
	instances, ok := c.sets[group+"/"+name]
	if !ok {
		out.AddResponseError(http.StatusNotFound, "ParentResourceNotFound")
		return out
	}
	if o == nil || o.Expand == nil || *o.Expand != "instanceView" {
		out.AddResponseError(http.StatusBadRequest, "no instance view was asked for")
		return out
	}
	for some := range pages(instances, c.page) {
		out.AddPage(http.StatusOK, armcompute.VirtualMachineScaleSetVMsClientListResponse{VirtualMachineScaleSetVMListResult: armcompute.VirtualMachineScaleSetVMListResult{Value: some}}, nil)
	}
	return out
}

func (c *azureCloud) get(_ context.Context, _, name string, _ *armcompute.VirtualMachinesClientGetOptions) (out azfake.Responder[armcompute.VirtualMachinesClientGetResponse], bad azfake.ErrorResponder) {
	for _, m := range c.machines {
		if strings.HasSuffix(*m.ID, "/"+name) {
			out.SetResponse(http.StatusOK, armcompute.VirtualMachinesClientGetResponse{VirtualMachine: *m}, nil)
			return out, bad
		}
	}
	bad.SetResponseError(http.StatusNotFound, "ResourceNotFound")
	return out, bad
}

func (c *azureCloud) getInSet(_ context.Context, group, set, id string, _ *armcompute.VirtualMachineScaleSetVMsClientGetOptions) (out azfake.Responder[armcompute.VirtualMachineScaleSetVMsClientGetResponse], bad azfake.ErrorResponder) {
	for _, m := range c.sets[group+"/"+set] {
		if strings.HasSuffix(*m.ID, "/"+id) {
			out.SetResponse(http.StatusOK, armcompute.VirtualMachineScaleSetVMsClientGetResponse{VirtualMachineScaleSetVM: *m}, nil)
			return out, bad
		}
	}
	bad.SetResponseError(http.StatusNotFound, "ResourceNotFound")
	return out, bad
}

// pages are the parts of a list; an empty list has one.
func pages[T any](list []T, size int) func(func([]T) bool) {
	if len(list) == 0 {
		return slices.Values([][]T{nil})
	}
	return slices.Chunk(list, size)
}

func (c *azureCloud) resources(_ context.Context, q armresourcegraph.QueryRequest, _ *armresourcegraph.ClientResourcesOptions) (out azfake.Responder[armresourcegraph.ClientResourcesResponse], bad azfake.ErrorResponder) {
	o := q.Options
	if o == nil || o.Top == nil || *o.Top < 1 || *o.Top > 1000 || *o.ResultFormat != armresourcegraph.ResultFormatObjectArray ||
		len(q.Subscriptions) != 1 || !strings.HasPrefix(*q.Query, "maintenanceresources |") {
		bad.SetResponseError(http.StatusBadRequest, "InvalidQuery")
		return out, bad
	}
	offset, size := 0, min(int(*o.Top), c.page*10)
	if o.SkipToken != nil {
		offset, _ = strconv.Atoi(*o.SkipToken)
	}
	end := min(offset+size, len(c.rows))
	count, total, truncated := int64(end-offset), int64(len(c.rows)), armresourcegraph.ResultTruncatedFalse
	answer := armresourcegraph.QueryResponse{Count: &count, TotalRecords: &total, ResultTruncated: &truncated, Data: append([]any{}, c.rows[offset:end]...)}
	if end < len(c.rows) {
		next := strconv.Itoa(end)
		answer.SkipToken = &next
	}
	out.SetResponse(http.StatusOK, armresourcegraph.ClientResourcesResponse{QueryResponse: answer}, nil)
	return out, bad
}
