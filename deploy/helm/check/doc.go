// Package check tests the Helm chart in deploy/helm/unstale: it renders the chart with the program
// helm and decodes the output as the API server does. It is a separate module, because the types of
// Kubernetes take minutes to compile. "make test-chart" builds helm and runs the tests.
package check
