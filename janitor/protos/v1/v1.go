// Package v1 has the names of package api/csp/v1 under the import path that ADR-017
// of the specification gives to plugins. New code imports api/csp/v1.
package v1

import api "github.com/nvidia/nvsentinel/api/csp/v1"

// The types of the API.
type (
	CSPPluginServiceClient              = api.CSPPluginServiceClient
	CSPPluginServiceServer              = api.CSPPluginServiceServer
	IsNodeReadyRequest                  = api.IsNodeReadyRequest
	IsNodeReadyResponse                 = api.IsNodeReadyResponse
	SendRebootSignalRequest             = api.SendRebootSignalRequest
	SendRebootSignalResponse            = api.SendRebootSignalResponse
	SendTerminateSignalRequest          = api.SendTerminateSignalRequest
	SendTerminateSignalResponse         = api.SendTerminateSignalResponse
	UnimplementedCSPPluginServiceServer = api.UnimplementedCSPPluginServiceServer
	UnsafeCSPPluginServiceServer        = api.UnsafeCSPPluginServiceServer
)

// The constants of the API.
const (
	CSPPluginService_IsNodeReady_FullMethodName         = api.CSPPluginService_IsNodeReady_FullMethodName
	CSPPluginService_SendRebootSignal_FullMethodName    = api.CSPPluginService_SendRebootSignal_FullMethodName
	CSPPluginService_SendTerminateSignal_FullMethodName = api.CSPPluginService_SendTerminateSignal_FullMethodName
)

// The variables and functions of the API.
var (
	CSPPluginService_ServiceDesc   = api.CSPPluginService_ServiceDesc
	File_csp_plugin_proto          = api.File_csp_plugin_proto
	NewCSPPluginServiceClient      = api.NewCSPPluginServiceClient
	RegisterCSPPluginServiceServer = api.RegisterCSPPluginServiceServer
)
