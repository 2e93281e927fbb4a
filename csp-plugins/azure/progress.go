package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	csp "github.com/nvidia/nvsentinel/csp-plugins/internal/cloud"
)

// resumed is a poller that was made from its token.
type resumed interface {
	Poll(ctx context.Context) (*http.Response, error)
	Done() bool
}

// Progress asks for the operation that its resume token names.
func (p *Provider) Progress(ctx context.Context, machine, operation string) (csp.Progress, error) {
	at, err := parse(machine)
	if err != nil {
		return "", err
	}
	if !p.trustedAddresses(operation) {
		return "", status.Errorf(codes.FailedPrecondition, "the recorded operation of machine %q does not exist at Azure Resource Manager", machine)
	}
	c, err := p.clients(at.subscription)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	asked, result, err := resume(ctx, c, at, operation)
	if err != nil {
		// The token is of none of these pollers: perhaps of another version of the SDK.
		// The boot id and the machine's state decide.
		return csp.UnknownOperation, nil
	}
	_, err = asked.Poll(ctx)
	switch {
	case answeredBy(err, http.StatusNotFound, http.StatusGone):
		return csp.UnknownOperation, nil
	case err != nil:
		return "", answered(err)
	case !asked.Done():
		return csp.Running, nil
	}
	if err := result(ctx); err != nil && !answeredBy(err, http.StatusNotFound) {
		apiErr, ok := errors.AsType[*azcore.ResponseError](err)
		if !ok || apiErr.StatusCode == http.StatusTooManyRequests || apiErr.StatusCode >= http.StatusInternalServerError {
			return "", answered(err) // how the operation ended is not known
		}
		return csp.Over, status.Errorf(codes.FailedPrecondition, "the operation failed: %v", err)
	}
	return csp.Over, nil
}

// answeredBy reports whether Azure answered with one of some HTTP statuses.
func answeredBy(err error, statuses ...int) bool {
	apiErr, ok := errors.AsType[*azcore.ResponseError](err)
	return ok && slices.Contains(statuses, apiErr.StatusCode)
}

// resume makes the poller that a token is of.
func resume(ctx context.Context, c *armcompute.ClientFactory, at resource, token string) (resumed, func(context.Context) error, error) {
	if at.set != "" {
		if p, err := c.NewVirtualMachineScaleSetVMsClient().BeginRestart(ctx, at.group, at.set, at.name, &armcompute.VirtualMachineScaleSetVMsClientBeginRestartOptions{ResumeToken: token}); err == nil {
			return p, func(ctx context.Context) error { _, err := p.Result(ctx); return err }, nil
		}
		ids := armcompute.VirtualMachineScaleSetVMInstanceRequiredIDs{}
		p, err := c.NewVirtualMachineScaleSetsClient().BeginDeleteInstances(ctx, at.group, at.set, ids, &armcompute.VirtualMachineScaleSetsClientBeginDeleteInstancesOptions{ResumeToken: token})
		return p, func(ctx context.Context) error { _, err := p.Result(ctx); return err }, err
	}
	if p, err := c.NewVirtualMachinesClient().BeginRestart(ctx, at.group, at.name, &armcompute.VirtualMachinesClientBeginRestartOptions{ResumeToken: token}); err == nil {
		return p, func(ctx context.Context) error { _, err := p.Result(ctx); return err }, nil
	}
	p, err := c.NewVirtualMachinesClient().BeginDelete(ctx, at.group, at.name, &armcompute.VirtualMachinesClientBeginDeleteOptions{ResumeToken: token})
	return p, func(ctx context.Context) error { _, err := p.Result(ctx); return err }, err
}

// trustedAddresses reports whether every address in a token is that of Azure Resource Manager: each
// is sent the plugin's own token.
func (p *Provider) trustedAddresses(token string) bool {
	manager, err := url.Parse(p.options.Cloud.Services[cloud.ResourceManager].Endpoint)
	if err != nil {
		return false
	}
	var text struct {
		Token map[string]any `json:"token"`
	}
	if err := json.Unmarshal([]byte(token), &text); err != nil || len(text.Token) == 0 {
		return false
	}
	for _, one := range text.Token {
		address, ok := one.(string)
		if !ok || !strings.Contains(address, "://") {
			continue
		}
		if u, err := url.Parse(address); err != nil || u.Scheme != manager.Scheme || !strings.EqualFold(u.Host, manager.Host) {
			return false
		}
	}
	return true
}
