// TypeScript for the tests, in worker threads too: tsx by itself leaves those out.
import { register } from 'tsx/esm/api'

register()
