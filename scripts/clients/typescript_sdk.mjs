// The client of the TypeScript SDK, from 1.0.4 (2024-11-05, stdio only) to 1.32.2. Run in the folder that it is
// installed in; the task is the first argument, see visit.py.

import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const require = createRequire(join(process.cwd(), "here.mjs"));
const load = (path) => import(pathToFileURL(require.resolve(`@modelcontextprotocol/sdk/${path}`)));

const task = JSON.parse(process.argv[2]);
const { Client } = await load("client/index.js");

async function transport() {
  if (task.url === null) {
    const { StdioClientTransport } = await load("client/stdio.js");
    return new StdioClientTransport({ command: task.command, args: task.args, env: task.env });
  }
  const { StreamableHTTPClientTransport } = await load("client/streamableHttp.js");
  return new StreamableHTTPClientTransport(new URL(task.url));
}

const client = new Client({ name: "client-matrix", version: "1" }, { capabilities: {} });
const chosen = await transport();

// The client does not tell which revision it agreed on; the server's answer does.
let protocol = null;
const seen = (message) => (protocol ??= message.result?.protocolVersion ?? null);
const connecting = client.connect(chosen);
const handed = chosen.onmessage;
chosen.onmessage = (message, ...more) => (seen(message), handed(message, ...more));
await connecting;

const { ResourceUpdatedNotificationSchema } = await load("types.js");
const heard = new Promise((resolve) =>
  client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => resolve(params.uri)),
);
const silence = new Promise((resolve) => setTimeout(resolve, 10_000, null).unref());

const call = (name, given) => client.callTool({ name, arguments: given });
const { tools } = await client.listTools();
await client.subscribeResource({ uri: "mem://recent" });
const created = await call("memory_create", task.create);
const updated = await Promise.race([heard, silence]);
const found = await call("memory_search", task.search);
const refused = await call("memory_search", task.wrong_search);
const [address] = JSON.stringify(found).match(/mem:\/\/item\/[0-9a-f-]+/);
const resource = await client.readResource({ uri: address });
const { prompts } = await client.listPrompts();
const prompt = await client.getPrompt({ name: task.prompt, arguments: task.prompt_arguments });
const server = client.getServerVersion().name;
await client.close();
console.log(JSON.stringify({ protocol, server, tools, created, updated, found, refused, resource, prompts, prompt }));
