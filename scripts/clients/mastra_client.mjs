// Mastra's own client, over every memory route that it has, against our server. Run in the folder that it is installed
// in; the first argument is the server's address. Prints the routes that it called and how many answers were checked.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const require = createRequire(join(process.cwd(), "here.mjs"));
const { MastraClient } = await import(pathToFileURL(require.resolve("@mastra/client-js")));

const called = new Set();
let checked = 0;
const recorded = (address, options) => {
  called.add(`${options?.method ?? "GET"} ${new URL(address).pathname}`);
  return fetch(address, options);
};
const client = new MastraClient({ baseUrl: process.argv[2], retries: 0, fetch: recorded });

const same = (got, wanted, what) => (assert.deepEqual(got, wanted, what), (checked += 1));
const refused = async (work, status, words) => {
  const error = await work().then(
    () => assert.fail("was not refused"),
    (error) => error,
  );
  same(error.status, status, error.message);
  assert.match(error.body.error, words);
};
const isTime = (text) => new Date(text).toISOString() === text;
const texts = ({ messages }) => messages.map(({ content }) => content.parts[0].text);

const agentId = "weather-agent";
const resourceId = "u-123";
const requestContext = { tier: "gold" };

// Memory
same(await client.getMemoryStatus(agentId, requestContext, { resourceId, threadId: "t-1" }), {
  result: true,
  memoryType: "local",
  observationalMemory: { enabled: false },
});
const { config } = await client.getMemoryConfig({ agentId, requestContext });
same([config.lastMessages, config.workingMemory.scope, config.semanticRecall.topK], [10, "resource", 4]);
await refused(() => client.getObservationalMemory({ agentId, resourceId, limit: 5 }), 400, /not enabled/);
await refused(() => client.awaitBufferStatus({ agentId, resourceId, threadId: "t-1" }), 400, /not enabled/);

// Threads
const first = await client.createMemoryThread({
  agentId,
  resourceId,
  threadId: "t-1",
  title: "Weather",
  metadata: { topic: "rain" },
  requestContext,
});
same({ ...first, createdAt: "", updatedAt: "" }, {
  id: "t-1",
  resourceId,
  title: "Weather",
  metadata: { topic: "rain" },
  createdAt: "",
  updatedAt: "",
});
assert.ok(isTime(first.createdAt) && isTime(first.updatedAt));
same(await client.createMemoryThread({ agentId, resourceId, threadId: "t-1", title: "Weather", metadata: { topic: "rain" } }), first);
const second = await client.createMemoryThread({ agentId, resourceId });
const third = await client.createMemoryThread({ agentId, resourceId: "u-456", metadata: { topic: "rain" } });
const thread = client.getMemoryThread({ threadId: "t-1", agentId });
same(await thread.get(requestContext), first);
await refused(() => client.getMemoryThread({ threadId: "none", agentId }).get(), 404, /No thread found with id none/);

const listed = await client.listMemoryThreads({ agentId, resourceId, page: 0, perPage: 1, requestContext });
same([listed.threads.length, listed.total, listed.page, listed.perPage, listed.hasMore], [1, 2, 0, 1, true]);
const next = await client.listMemoryThreads({ agentId, resourceId, page: 1, perPage: 1 });
same([next.threads.length, next.hasMore], [1, false]);
const byAge = { field: "createdAt", direction: "ASC" };
const ids = async (query) => (await client.listMemoryThreads({ agentId, ...query })).threads.map(({ id }) => id);
same(await ids({ orderBy: byAge }), ["t-1", second.id, third.id]);
same(await ids({ orderBy: { ...byAge, direction: "DESC" } }), [third.id, second.id, "t-1"]);
same(await ids({ metadata: { topic: "rain" }, orderBy: byAge }), ["t-1", third.id]);
same(await ids({ metadata: { topic: "rain" }, resourceId: "u-456" }), [third.id]);
same(await client.listMemoryThreads({ agentId: "another-agent" }), { threads: [], total: 0, page: 0, perPage: 100, hasMore: false });

const changed = await thread.update({ title: "Rain", metadata: { topic: "snow" }, resourceId, requestContext });
same([changed.title, changed.metadata, changed.createdAt], ["Rain", { topic: "snow" }, first.createdAt]);
await refused(() => thread.update({ title: "x", metadata: {}, resourceId: "u-456" }), 403, /is for resource with id u-123/);

// Messages: format 2 and plain
const at = (second) => new Date(Date.UTC(2026, 0, 1, 12, 0, second));
const message = (id, role, content, second) => ({ id, role, content, threadId: "t-1", resourceId, type: "text", createdAt: at(second) });
const format2 = (text, metadata) => ({ format: 2, parts: [{ type: "text", text }], ...(metadata && { metadata }) });
const saved = await client.saveMessageToMemory({
  agentId,
  messages: [
    message("m-1", "user", format2("Will it rain in Berlin?", { mood: "worried" }), 1),
    message("m-2", "assistant", format2("Take an umbrella."), 2),
    message("m-3", "user", "And tomorrow?", 3),
    message("m-4", "assistant", [{ type: "text", text: "Sunshine all day." }], 4),
  ],
  requestContext,
});
same(saved.messages.map(({ id }) => id), ["m-1", "m-2", "m-3", "m-4"]);
same(saved.messages[0].content, format2("Will it rain in Berlin?", { mood: "worried" }));
same(texts(saved), ["Will it rain in Berlin?", "Take an umbrella.", "And tomorrow?", "Sunshine all day."]);
same([saved.messages[0].createdAt, saved.messages[0].resourceId], [at(1).toISOString(), resourceId]);
const again = await client.saveMessageToMemory({ agentId, messages: [message("m-2", "assistant", format2("Take an umbrella."), 2)] });
same(again.messages, [saved.messages[1]]);
await refused(() => client.saveMessageToMemory({ agentId, messages: [{ role: "user", content: "x" }] }), 400, /threadId and resourceId/);

const all = await thread.listMessages({ requestContext });
same([texts(all), all.total, all.page, all.hasMore, all.uiMessages], [texts(saved), 4, 0, false, null]);
const newest = await thread.listMessages({ perPage: 2 });
same([texts(newest), newest.hasMore], [["And tomorrow?", "Sunshine all day."], true]);
same(texts(await thread.listMessages({ perPage: 3, page: 1, orderBy: byAge })), ["Sunshine all day."]);
same(texts(await thread.listMessages({ perPage: 1, orderBy: { ...byAge, direction: "DESC" } })), ["Sunshine all day."]);
same(texts(await thread.listMessages({ filter: { dateRange: { start: at(2), end: at(3) } } })), ["Take an umbrella.", "And tomorrow?"]);
same(texts(await thread.listMessages({ filter: { dateRange: { start: at(2), end: at(3), startExclusive: true } } })), ["And tomorrow?"]);
same(texts(await thread.listMessages({ filter: { roles: ["user"] } })), ["Will it rain in Berlin?", "And tomorrow?"]);
same(texts(await thread.listMessages({ filter: { metadata: { mood: "worried" } } })), ["Will it rain in Berlin?"]);
const included = await thread.listMessages({ perPage: 1, include: [{ id: "m-2", withPreviousMessages: 1, withNextMessages: 0 }] });
same(texts(included), ["Will it rain in Berlin?", "Take an umbrella.", "Sunshine all day."]);
same(texts(await client.listThreadMessages("t-1", { agentId, resourceId, includeSystemReminders: false })), texts(saved));
same(texts(await client.listThreadMessages("t-1", { networkId: agentId })), texts(saved));
await refused(() => client.listThreadMessages("t-1", { agentId, resourceId: "u-456" }), 403, /but resource u-456 was queried/);

// Search
const found = await client.searchMemory({ agentId, resourceId, searchQuery: "umbrella", requestContext });
same([found.count, found.query, found.searchScope, found.searchType], [found.results.length, "umbrella", "resource", "semantic"]);
const [best] = found.results;
same([best.id, best.role, best.content, best.threadId, best.threadTitle], ["m-2", "assistant", "Take an umbrella.", "t-1", "Rain"]);
same([best.context.before.map(({ id }) => id), best.context.after.map(({ content }) => content)], [["m-1"], ["And tomorrow?", "Sunshine all day."]]);
const memoryConfig = { lastMessages: 0, semanticRecall: { topK: 1, messageRange: 0, scope: "thread" } };
const narrow = await client.searchMemory({ agentId, resourceId, threadId: "t-1", searchQuery: "umbrella", memoryConfig });
same([narrow.results.map(({ id, context }) => [id, context]), narrow.searchScope], [[["m-2", { before: [], after: [] }]], "thread"]);
same((await client.searchMemory({ agentId, resourceId: "u-456", searchQuery: "umbrella" })).results, []);

// Working memory
const asked = { agentId, threadId: "t-1", resourceId };
const template = { workingMemoryTemplate: null, threadExists: true, source: "resource" };
same(await client.getWorkingMemory(asked), { workingMemory: null, ...template });
same(await client.updateWorkingMemory({ ...asked, workingMemory: '{"city": "Berlin", "likes": ["tea"]}', requestContext }), { success: true });
same(await client.updateWorkingMemory({ ...asked, workingMemory: '{"city": null, "name": "Ann"}' }), { success: true });
const kept = await client.getWorkingMemory({ ...asked, requestContext });
same([JSON.parse(kept.workingMemory), kept.source], [{ likes: ["tea"], name: "Ann" }, "resource"]);
same((await client.getWorkingMemory({ agentId, threadId: second.id })).workingMemory, kept.workingMemory);
await client.updateWorkingMemory({ agentId, threadId: third.id, workingMemory: "# Bob\n- likes rain" });
same((await client.getWorkingMemory({ agentId, threadId: third.id, resourceId: "u-456" })).workingMemory, "# Bob\n- likes rain");
same((await client.getWorkingMemory({ agentId, threadId: "none", resourceId })).threadExists, false);

// Copies, change of hands, deletion
const clone = await thread.clone({ newThreadId: "t-2", title: "Copy", metadata: { by: "test" }, requestContext });
same([clone.thread.id, clone.thread.title, clone.thread.metadata.by], ["t-2", "Copy", "test"]);
same(clone.thread.metadata.clone.sourceThreadId, "t-1");
same(texts({ messages: clone.clonedMessages }), texts(saved));
assert.ok(clone.clonedMessages.every(({ id }) => !id.startsWith("m-")));
const cloned = async (options) => texts({ messages: (await thread.clone({ options })).clonedMessages });
same(await cloned({ messageLimit: 1 }), ["Sunshine all day."]);
same(await cloned({ messageFilter: { messageIds: ["m-1", "m-3"] } }), ["Will it rain in Berlin?", "And tomorrow?"]);
same(await cloned({ messageFilter: { startDate: at(2), endDate: at(3) } }), ["Take an umbrella.", "And tomorrow?"]);

const given = await client.getMemoryThread({ threadId: "t-2", agentId }).transfer({ resourceId: "u-456", requestContext });
same([given.resourceId, given.title, given.createdAt], ["u-456", "Copy", clone.thread.createdAt]);
same(texts(await client.listThreadMessages("t-2", { agentId, resourceId: "u-456" })), texts(saved));
await refused(() => client.getMemoryThread({ threadId: "none", agentId }).transfer({ resourceId: "x" }), 404, /none/);

same(await thread.deleteMessages("m-1"), { success: true, message: "1 message deleted successfully" });
same(await thread.deleteMessages([{ id: "m-2" }, { id: "m-3" }], { requestContext }), { success: true, message: "2 messages deleted successfully" });
same(texts(await thread.listMessages()), ["Sunshine all day."]);
same(await thread.delete({ requestContext }), { result: "Thread deleted" });
await refused(() => thread.get(), 404, /No thread found with id t-1/);
same(await client.deleteThread("t-2", { agentId }), { result: "Thread deleted" });
same(await client.deleteThread(second.id, { networkId: agentId }), { result: "Thread deleted" });
await refused(() => client.deleteThread(second.id, { agentId }), 404, /No thread found/);

// Without an agent: the caller's own conversations, of which there are none.
same((await client.listMemoryThreads()).threads, []);
await refused(() => client.getMemoryThread({ threadId: third.id }).get(), 404, /No thread found/);

console.log(JSON.stringify({ called: [...called], checked }));
