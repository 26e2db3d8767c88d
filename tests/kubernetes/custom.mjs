// Checks custom resources against the schemas of their definitions, as packages of models have them:
//     node custom.mjs MODULES < RESULTS        (of render.py)
// It prints a line for each: its kind, and what is wrong with it, or ok.
import { readFileSync } from "node:fs";

const models = `${process.argv[2]}/@kubernetes-models`;
const { HTTPRoute } = await import(`${models}/gateway-api/gateway.networking.k8s.io/v1/index.js`);
const { ServiceMonitor } = await import(
  `${models}/prometheus-operator/monitoring.coreos.com/v1/index.js`
);
const kinds = { HTTPRoute, ServiceMonitor };
for (const result of JSON.parse(readFileSync(0, "utf8"))) {
  for (const manifest of result.manifests.filter((each) => each.kind in kinds)) {
    try {
      new kinds[manifest.kind](manifest).validate();
      console.log(manifest.kind, "ok");
    } catch (error) {
      console.log(manifest.kind, error.message);
    }
  }
}
