import { execFile } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterEach, expect, it } from 'vitest'
import { ROOT } from '../helpers/document-part.ts'
import { Program } from '../helpers/program.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const README = readFileSync(join(ROOT, 'README.md'), 'utf8')
const shell = promisify(execFile)

/** The lines that the README asks to be pasted while `npm start` runs. */
function pastedLines(): string[] {
  const [, part = ''] = /^## Five minutes\n(.*?)^## /ms.exec(README) ?? []
  const blocks = [...part.matchAll(/^```sh\n(.*?)^```$/gms)].map(([, block = '']) => block)
  return blocks.flatMap((block) => block.trim().split('\n'))
}

/** What `up` tells a newcomer, from its first word to its last. */
async function welcomeOf(program: Program): Promise<string> {
  let text = ''
  for await (const part of program.child.stdout ?? []) {
    text += part
    if (text.includes('Tunnels are stored')) return text
  }
  throw new Error(`ended before it was ready: ${program.stderr}`)
}

const running: Program[] = []
afterEach(() => Promise.all(running.splice(0).map((program) => program.end())))

it('works as the README says it, line by line', async () => {
  const cwd = temporaryFolder()
  const program = new Program({ args: ['up'], cwd })
  running.push(program)
  const welcome = await welcomeOf(program)
  const ports = [
    ['7040', /agent API {4}http:\/\/127\.0\.0\.1:(\d+)/],
    ['7041', /sample {7}http:\/\/127\.0\.0\.1:(\d+)/],
    ['8080', /public {7}http:\/\/127\.0\.0\.1:(\d+)/],
    ['8443', /public .*https:\/\/127\.0\.0\.1:(\d+)/],
  ] as const
  const asHere = (line: string) =>
    ports.reduce((text, [port, place]) => {
      const [, here = port] = place.exec(welcome) ?? []
      return text.replaceAll(`:${port}`, `:${here}`)
    }, line)

  const answers: string[] = []
  for (const line of pastedLines()) {
    const { stdout } = await shell('bash', ['-c', asHere(line)], { cwd, timeout: 60_000 })
    answers.push(stdout)
  }
  expect(answers).toEqual([
    expect.stringMatching(/^{"url":"https:\/\/hello\.site\.localhost:\d+","protocol":"http"/),
    expect.stringMatching(/^Hello from the device\./),
    expect.stringMatching(/^Hello from the device\./),
    expect.stringContaining('"healthy":true'),
    expect.stringContaining('"healthy":true'),
    '',
    expect.stringContaining('ERR_NGROK_3200'),
  ])
})
