import { describe, expect, it } from 'vitest'
import {
  CreateBatches,
  type ManagementAnswer,
} from '../../../src/cli/provision/management-client.ts'

/** Asks for two things at the same time, of a service that answers so. */
async function askTwo(answer: (path: string, body: object) => ManagementAnswer) {
  const asked: string[] = []
  const creates = new CreateBatches(async (path, body) => {
    asked.push(path)
    return answer(path, body)
  })
  const both = () => Promise.all([creates.ask('a', { n: 1 }), creates.ask('b', { n: 2 })])
  return { creates, both, asked, answers: await both() }
}

const json = (status: number, body: unknown) => ({ status, text: JSON.stringify(body) })

describe('what is made at the same time', () => {
  it('is asked for at once, and gets the answers that belong to it', async () => {
    const { answers, asked, creates } = await askTwo((path, body) =>
      path === 'batch'
        ? json(200, {
            responses: [
              { status: 201, body },
              { status: 400, body: { msg: 'no' } },
            ],
          })
        : json(201, body),
    )
    expect(answers[0]).toEqual(
      json(201, {
        requests: [
          { path: 'a', body: { n: 1 } },
          { path: 'b', body: { n: 2 } },
        ],
      }),
    )
    expect(answers[1]).toEqual(json(400, { msg: 'no' }))
    expect(await creates.ask('c', { n: 3 })).toEqual(json(201, { n: 3 }))
    expect(asked).toEqual(['batch', 'c'])
  })

  it.each([404, 405])(
    'is asked for one by one from then on where that is answered %i',
    async (status) => {
      const { answers, asked, both } = await askTwo((path, body) =>
        path === 'batch' ? json(status, {}) : json(201, body),
      )
      expect(answers).toEqual([json(201, { n: 1 }), json(201, { n: 2 })])
      await both()
      expect(asked).toEqual(['batch', 'a', 'b', 'a', 'b'])
    },
  )

  it.each([
    json(403, { msg: 'no' }),
    json(200, { responses: [] }),
    { status: 200, text: 'no JSON' },
  ])('is refused when all of it is', async (answer) => {
    const { answers } = await askTwo(() => answer)
    expect(answers).toEqual([answer, answer])
  })

  it('has failed when nobody answers', async () => {
    const asked = askTwo(() => {
      throw new Error('Nobody answers.')
    })
    await expect(asked).rejects.toThrow('Nobody answers.')
  })
})
