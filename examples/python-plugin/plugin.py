"""An example of a provider plugin: it reboots machines through the HTTP API of
a rack controller. The controller remembers the ids of the requests it took, so
the plugin needs no memory of its own.

The modules csp_plugin_pb2 and csp_plugin_pb2_grpc are made from the contract:

    python -m grpc_tools.protoc -I janitor/protos/v1 --python_out=. \
        --grpc_python_out=. csp_plugin.proto
"""

import argparse
import json
import signal
import urllib.error
import urllib.parse
import urllib.request
from concurrent import futures

import grpc
from google.protobuf import duration_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_status import rpc_status

import csp_plugin_pb2 as pb
import csp_plugin_pb2_grpc as service

NAME = pb.DESCRIPTOR.services_by_name["CSPPluginService"].full_name


class Rack(service.CSPPluginServiceServicer):
    def __init__(self, url):
        self.url = url

    def SendRebootSignal(self, request, context):
        answer = self.ask(context, "POST", request.node_name, request.idempotency_key)
        return pb.SendRebootSignalResponse(request_id=answer["request"])

    def IsNodeReady(self, request, context):
        return pb.IsNodeReadyResponse(is_ready=self.ask(context, "GET", request.node_name)["on"])

    def SendTerminateSignal(self, request, context):
        answer = self.ask(context, "DELETE", request.node_name, request.idempotency_key)
        return pb.SendTerminateSignalResponse(request_id=answer["request"])

    def ask(self, context, method, machine, key=""):
        """Calls the rack controller; what goes wrong is the answer to the janitor."""
        if not machine:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "node_name is empty")
        path = "/machines/" + urllib.parse.quote(machine, safe="") + "?" + urllib.parse.urlencode({"id": key})
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url + path, method=method), timeout=20) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                context.abort(grpc.StatusCode.NOT_FOUND, f"the rack has no machine {machine!r}")
            if error.code == 409:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"id {key!r} was used for another machine")
            if error.code == 429:
                context.abort_with_status(rpc_status.to_status(busy()))
            context.abort(grpc.StatusCode.UNKNOWN, f"the rack controller answered {error.code}")
        except OSError as error:  # it may have been done
            context.abort(grpc.StatusCode.UNAVAILABLE, str(error))


def busy():
    """Nothing was done; come back in ten seconds."""
    status = status_pb2.Status(code=code_pb2.RESOURCE_EXHAUSTED, message="the rack controller is busy")
    status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(seconds=10)))
    return status


def main():
    flags = argparse.ArgumentParser()
    flags.add_argument("--listen", default="[::]:9090")
    flags.add_argument("--controller", default="http://rack-controller")
    options = flags.parse_args()

    server = grpc.server(futures.ThreadPoolExecutor(max_workers=16))
    service.add_CSPPluginServiceServicer_to_server(Rack(options.controller), server)
    healthy = health.HealthServicer()
    for name in ("", NAME):
        healthy.set(name, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
    server.add_insecure_port(options.listen)
    server.start()
    signal.signal(signal.SIGTERM, lambda *_: server.stop(grace=10))
    server.wait_for_termination()


if __name__ == "__main__":
    main()
