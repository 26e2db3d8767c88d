// Post a loss stream and print the rows of a report as they arrive, one JSON object a line:
//   node reader.mjs http://127.0.0.1:8000 summary.bin melt > rows.ndjson
// fetch hides trailers, so this reads NDJSON, which says in its last line that it is complete.
import { openAsBlob } from "node:fs";

const [url, file, report] = process.argv.slice(2);
const headers = { Accept: "application/x-ndjson" };
if (process.env.THALWEG_KEY) headers.Authorization = `Bearer ${process.env.THALWEG_KEY}`;
const body = await openAsBlob(file);
const answer = await fetch(`${url}/v1/losses/${report}`, { method: "POST", headers, body });
if (!answer.ok) throw new Error(`${answer.status} ${await answer.text()}`);

let rest = "", end;
for await (const text of answer.body.pipeThrough(new TextDecoderStream())) {
  const lines = (rest + text).split("\n");
  rest = lines.pop();
  for (const line of lines) {
    const said = JSON.parse(line);
    if (said.error) throw new Error(`[${said.error.code}] ${said.error.detail}`);
    end ??= said.end;
    if (!said.end && !said.checkpoint && !said.heartbeat) console.log(line);
  }
}
if (end?.reason !== "complete") throw new Error("the answer was cut: it has no end");
